package cases

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/idmux/idmux/internal/testbackend"
)

// Match compares a reply with the one that a case lists: the id token byte for byte, numbers by their text, members in any
// order but all of them, the members of a batch in order, and of an error the code alone.
func Match(want string, got []byte) error {
	if !json.Valid(got) {
		return fmt.Errorf("not JSON: %.200q", got)
	}
	wanted, got := bytes.TrimSpace([]byte(want)), bytes.TrimSpace(got)
	if wanted[0] != '[' {
		return matchMessage(wanted, got)
	}
	wants, err := testbackend.Elements(wanted)
	if err != nil {
		return err
	}
	gots, err := testbackend.Elements(got)
	if err != nil {
		return err
	}
	if len(gots) != len(wants) {
		return fmt.Errorf("%d elements, want %d", len(gots), len(wants))
	}
	for i := range wants {
		if err := matchMessage(wants[i], gots[i]); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

func matchMessage(want, got []byte) error {
	wants, err := testbackend.Members(want)
	if err != nil {
		return err
	}
	gots, err := testbackend.Members(got)
	if err != nil {
		return err
	}
	return matchMembers(wants, gots, func(name string, w, g json.RawMessage) error {
		switch {
		case name == "id" && !bytes.Equal(w, g):
			return fmt.Errorf("id is %s, want %s", g, w)
		case name == "error" && string(w) != "null":
			return matchError(w, g)
		}
		return matchValue(w, g)
	})
}

// matchError wants the code, a message that is text, and perhaps data.
func matchError(want, got json.RawMessage) error {
	var w, g struct {
		Code    json.RawMessage `json:"code"`
		Message *string         `json:"message"`
	}
	if err := errors.Join(json.Unmarshal(want, &w), json.Unmarshal(got, &g)); err != nil {
		return fmt.Errorf("error object: %w", err)
	}
	if !bytes.Equal(w.Code, g.Code) {
		return fmt.Errorf("error code is %s, want %s", g.Code, w.Code)
	}
	if g.Message == nil {
		return errors.New("the error has no message")
	}
	return nil
}

// matchMembers pairs members by name; where a name occurs several times, in their order.
func matchMembers(wants, gots []testbackend.Member, match func(name string, w, g json.RawMessage) error) error {
	byName := func(a, b testbackend.Member) int { return strings.Compare(a.Name, b.Name) }
	wants, gots = slices.Clone(wants), slices.Clone(gots)
	slices.SortStableFunc(wants, byName)
	slices.SortStableFunc(gots, byName)
	if len(wants) != len(gots) {
		return fmt.Errorf("members %s, want %s", names(gots), names(wants))
	}
	for i, w := range wants {
		if w.Name != gots[i].Name {
			return fmt.Errorf("members %s, want %s", names(gots), names(wants))
		}
		if err := match(w.Name, w.Value, gots[i].Value); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
	}
	return nil
}

func names(members []testbackend.Member) []string {
	all := make([]string, len(members))
	for i, m := range members {
		all[i] = m.Name
	}
	return all
}

// matchValue compares two values without leading space.
func matchValue(want, got json.RawMessage) error {
	if want[0] != got[0] {
		return fmt.Errorf("got %.200s, want %.200s", got, want)
	}
	switch want[0] {
	case '{':
		return matchObject(want, got)
	case '[':
		return matchArray(want, got)
	case '"':
		return matchText(want, got)
	}
	if !bytes.Equal(want, got) {
		return fmt.Errorf("got %.200s, want %.200s", got, want)
	}
	return nil
}

func matchObject(want, got json.RawMessage) error {
	wants, err := testbackend.Members(want)
	if err != nil {
		return err
	}
	gots, err := testbackend.Members(got)
	if err != nil {
		return err
	}
	return matchMembers(wants, gots, func(_ string, w, g json.RawMessage) error { return matchValue(w, g) })
}

func matchArray(want, got json.RawMessage) error {
	wants, err := testbackend.Elements(want)
	if err != nil {
		return err
	}
	gots, err := testbackend.Elements(got)
	if err != nil {
		return err
	}
	if len(wants) != len(gots) {
		return fmt.Errorf("%d elements, want %d", len(gots), len(wants))
	}
	for i := range wants {
		if err := matchValue(wants[i], gots[i]); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

func matchText(want, got json.RawMessage) error {
	var w, g string
	if err := errors.Join(json.Unmarshal(want, &w), json.Unmarshal(got, &g)); err != nil {
		return err
	}
	if w != g {
		return fmt.Errorf("got %.200q, want %.200q", g, w)
	}
	return nil
}
