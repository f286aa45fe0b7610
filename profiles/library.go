package profiles

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
)

// Default is the name of the profile of an upstream that has no other.
const Default = "jsonrpc"

//go:embed data/*.yaml
var files embed.FS

// embedded are the profiles that idmux has.
var embedded = sync.OnceValue(func() map[string]*Profile {
	all := make(map[string]*Profile)
	names, err := fs.Glob(files, "data/*.yaml")
	if err != nil {
		panic("profiles: " + err.Error())
	}
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			panic("profiles: " + err.Error())
		}
		p, err := Parse(path.Base(name), data)
		if err != nil {
			panic("profiles: an embedded file: " + err.Error())
		}
		all[p.Name] = p
	}
	return all
})

// Library is the profiles that there are: the embedded ones, and those of an operator. It is not safe for concurrent use.
type Library struct{ own map[string]*Profile }

// Load returns the rules of an embedded profile.
func Load(name string) (*Rules, error) { return new(Library).Rules(name) }

// Add adds a profile of the operator's. What is wrong with it comes back all at once, as [*Errors].
func (l *Library) Add(file string, data []byte) error {
	p, err := Parse(file, data)
	if err != nil {
		return err
	}
	_, known := embedded()[p.Name]
	first, twice := l.own[p.Name]
	switch {
	case known:
		return p.source.errors([]problem{{"profile", fmt.Sprintf("%q is a profile of idmux; give yours another name and let it extend that one", p.Name)}})
	case twice:
		return p.source.errors([]problem{{"profile", fmt.Sprintf("%q is the profile in %s, too", p.Name, first.source.file)}})
	}
	if l.own == nil {
		l.own = make(map[string]*Profile)
	}
	l.own[p.Name] = p
	return nil
}

// Names returns the names of all profiles in order.
func (l *Library) Names() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for _, all := range []map[string]*Profile{embedded(), l.own} {
			for name := range maps.Keys(all) {
				if !yield(name) {
					return
				}
			}
		}
	})
}

// Has reports whether there is a profile with a name.
func (l *Library) Has(name string) bool { return l.profile(name) != nil }

func (l *Library) profile(name string) *Profile {
	if p, ok := l.own[name]; ok {
		return p
	}
	return embedded()[name]
}

// Check reports what is wrong with the operator's profiles together, as [*Errors]: what they extend.
func (l *Library) Check() error {
	var all Errors
	for _, name := range slices.Sorted(maps.Keys(l.own)) {
		if _, err := l.Rules(name); err != nil {
			if e, ok := errors.AsType[*Errors](err); ok {
				all.Mistakes = append(all.Mistakes, e.Mistakes...)
			}
		}
	}
	if len(all.Mistakes) == 0 {
		return nil
	}
	return &all
}

// Rules returns the rules of a profile, with those of what it extends.
func (l *Library) Rules(name string) (*Rules, error) {
	p := l.profile(name)
	if p == nil {
		return nil, fmt.Errorf("profiles: no profile is called %q; there are %s", name, strings.Join(l.Names(), ", "))
	}
	whole, err := l.whole(p, nil)
	if err != nil {
		return nil, err
	}
	r, err := compile(whole)
	if err != nil {
		return nil, p.source.errors([]problem{{"", strings.TrimPrefix(err.Error(), "profiles: ")}})
	}
	return r, nil
}

// whole returns p with the rules of what it extends. The names are those of the profiles that extend p.
func (l *Library) whole(p *Profile, names []string) (*Profile, error) {
	if p.Extends == "" {
		return p, nil
	}
	names = append(names, p.Name)
	base := l.profile(p.Extends)
	switch {
	case base == nil:
		text := fmt.Sprintf("no profile is called %q; there are %s", p.Extends, strings.Join(l.Names(), ", "))
		return nil, p.source.errors([]problem{{"extends", text}})
	case slices.Contains(names, base.Name):
		return nil, p.source.errors([]problem{{"extends", "goes round in a circle: " + strings.Join(append(names, base.Name), " extends ")}})
	}
	base, err := l.whole(base, names)
	if err != nil {
		return nil, err
	}
	return extend(base, p)
}
