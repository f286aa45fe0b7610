package configs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/idmux/idmux/profiles"
)

// maxProfile is the size in bytes of the largest file with a profile that is read.
const maxProfile = 256 << 10

// readProfiles adds the operator's profiles to the library of c. Mistakes in a file stand in that file.
func (r *reader) readProfiles(c *Config) {
	for at := range r.bad {
		if at == "profiles" || strings.HasPrefix(at, "profiles[") { // not all of the list could be read
			r.bad["profiles"] = true
			return
		}
	}
	for i, file := range c.Profiles {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(r.name), file)
		}
		data, err := readProfile(file)
		if err == nil {
			err = c.library.Add(file, data)
		}
		r.profileMistakes(index("profiles", i), err)
	}
	if !r.bad["profiles"] {
		r.profileMistakes("profiles", c.library.Check())
	}
}

// profileMistakes notes what is wrong with a file that the value at a path names.
func (r *reader) profileMistakes(at string, err error) {
	if err == nil {
		return
	}
	r.bad["profiles"] = true // an upstream may have meant what is not there now
	var mistakes *profiles.Errors
	if !errors.As(err, &mistakes) {
		r.mistakeAt(r.find(at), at, err.Error())
		return
	}
	for _, m := range mistakes.Mistakes {
		r.elsewhere = append(r.elsewhere, Mistake(m))
	}
}

func readProfile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxProfile {
		return nil, fmt.Errorf("%s must be a regular file of at most %s", path, FormatSize(maxProfile))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return io.ReadAll(io.LimitReader(f, maxProfile))
}

// profileProblem reports an upstream's profile that is not there.
func (c *Config) profileProblem(i int) []problem {
	u, at := &c.Upstreams[i], join(index("upstreams", i), "profile")
	if c.library.Has(u.Profile) {
		return nil
	}
	hint := didYouMean(closest(u.Profile, c.library.Names()))
	if hint == "" {
		hint = fmt.Sprintf("; there are %s", words(c.library.Names()))
	}
	text := fmt.Sprintf("%s: profile: no profile is called %s%s", objectName("upstream", u.Name, index("upstreams", i)), clip(u.Profile), hint)
	return []problem{{at: at, text: text, because: []string{"profiles"}}}
}
