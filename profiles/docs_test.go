package profiles

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestDocumentation keeps docs/profiles.md complete: it has the example as it is, each profile, and each key.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../docs/profiles.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	example, err := os.ReadFile("../configs/examples/profiles/newsroom.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "```yaml\n"+string(example)+"```\n") {
		t.Error("the example is not the file")
	}
	for _, name := range new(Library).Names() {
		if !strings.Contains(text, "\n| `"+name+"` |") {
			t.Errorf("profile %s is not in the table", name)
		}
	}
	seen := 0
	for _, kind := range []reflect.Type{
		reflect.TypeFor[Profile](), reflect.TypeFor[Reference](), reflect.TypeFor[Token](), reflect.TypeFor[Subscription](),
		reflect.TypeFor[Stream](), reflect.TypeFor[Question](), reflect.TypeFor[Answer](), reflect.TypeFor[News](),
		reflect.TypeFor[Owned](), reflect.TypeFor[Level](), reflect.TypeFor[Handshake](), reflect.TypeFor[Replacement](), reflect.TypeFor[Local](), reflect.TypeFor[Anew](),
		reflect.TypeFor[Match](), reflect.TypeFor[Show](), reflect.TypeFor[Undo](), reflect.TypeFor[Notice](),
		reflect.TypeFor[Document](), reflect.TypeFor[DocumentOpen](), reflect.TypeFor[DocumentChange](), reflect.TypeFor[DocumentEvent](),
	} {
		for _, key := range keysOf(kind) {
			seen++
			if !strings.Contains(text, "`"+key+"`") && !strings.Contains(text, "### "+key+":") {
				t.Errorf("%s of %s is not explained", key, kind.Name())
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d keys", seen)
	}
}
