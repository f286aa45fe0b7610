package profiles

import "testing"

func TestEmbedded(t *testing.T) {
	for _, name := range new(Library).Names() {
		if _, err := Load(name); err != nil {
			t.Error(err)
		}
	}
}
