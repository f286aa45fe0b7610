// Package arch says which package of this module may import which, and a test keeps it so:
//
//	cmd → configs → tracing → proxy → upstream → internal/wire
//	                          proxy → internal/ingress → internal/wire
//	                          proxy → correlate → profiles → rewrite
//	                          proxy → documents → profiles
//
// All may use internal/tlsconf, which uses none of them.
//
// Only files that are not tests count. A change that needs an arrow turned usually means a type in the wrong package.
package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const module = "github.com/idmux/idmux"

// Package is what the go command says of a package.
type Package struct {
	ImportPath string
	Imports    []string
}

// layers are the packages of the product, by folder, and what else of the product each may import. A folder below one of
// them has its rule.
var layers = map[string][]string{
	"internal/wire":      {},
	"internal/child":     {},
	"internal/sse":       {},
	"internal/mcphttp":   {"internal/sse", "internal/wire", "rewrite"},
	"internal/connect":   {"internal/wire", "internal/sse", "rewrite"},
	"internal/tlsconf":   {},
	"internal/ingress":   {"internal/tlsconf", "internal/wire"},
	"rewrite":            {},
	"profiles":           {"rewrite"},
	"internal/agentcard": {"rewrite"},
	"upstream":           {"internal/tlsconf", "internal/wire", "internal/child", "internal/mcphttp", "internal/sse"},
	"correlate":          {"profiles", "rewrite"},
	"documents":          {"profiles", "rewrite"},
	"proxy":              {"upstream", "internal/mcphttp", "internal/agentcard", "internal/ingress", "internal/tlsconf", "internal/wire", "internal/sse", "correlate", "documents", "profiles", "rewrite"},
	"tracing":            {"proxy", "upstream", "internal/tlsconf", "rewrite"},
	"configs":            {"tracing", "proxy", "upstream", "internal/agentcard", "internal/tlsconf", "profiles", "rewrite"},
	"cmd":                {"configs", "tracing", "proxy", "upstream", "internal/tlsconf", "internal/wire", "internal/child", "internal/connect", "profiles", "rewrite"},
	"bench":              {}, // runs the commands as its users do

	// Test helpers look at the product from outside.
	"internal/arch":        {},
	"internal/testbackend": {},
	"internal/testcerts":   {},
	"internal/blackbox":    {"internal/testbackend"},
}

// only names the folders that may import a library; everything else may not.
var only = map[string]struct {
	folders []string
	reason  string
}{
	"go.opentelemetry.io": {
		[]string{"tracing"}, "telemetry libraries live in tracing, which fills hooks that the others declare",
	},
	"github.com/prometheus": {
		[]string{"tracing"}, "telemetry libraries live in tracing, which fills hooks that the others declare",
	},
	"github.com/gorilla/websocket": {
		[]string{"internal/wire", "cmd/idmux-load", "internal/testbackend", "internal/blackbox"},
		"internal/wire is the one place that knows how a transport frames",
	},
	"github.com/goccy/go-yaml": {
		[]string{"configs", "profiles"}, "keys, files and defaults are the business of configs, and protocols that of profiles",
	},
	"github.com/urfave/cli/v2": {
		[]string{"cmd", "bench"}, "flags are the business of the commands",
	},
	"testing": {
		[]string{"internal/testbackend", "internal/testcerts", "internal/blackbox"}, "the product does not carry the testing package",
	},
}

// never are libraries that a folder must not import even though it could.
var never = map[string]struct {
	libraries []string
	reason    string
}{
	"rewrite": {
		[]string{"net", "net/http", "context", "time", "os", "log/slog"},
		"rewrite knows bytes: no sockets, no sessions, no contexts, no time",
	},
	"internal/wire": {
		[]string{"encoding/json"}, "internal/wire carries frames and knows no JSON",
	},
}

// beside is what a folder may import from outside the standard library, where that is limited to a list.
var beside = map[string][]string{
	"rewrite": {"github.com/hashicorp/golang-lru/v2"},
}

// Check returns each import that breaks a rule, with the rule.
func Check(all []Package) []string {
	var broken []string
	for _, p := range all {
		folder := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		layer := layerOf(folder)
		if layer == "" {
			broken = append(broken, fmt.Sprintf("%s has no place in the layers of internal/arch", p.ImportPath))
			continue
		}
		for _, imported := range p.Imports {
			if reason := check(folder, layer, imported); reason != "" {
				broken = append(broken, fmt.Sprintf("%s imports %s: %s", p.ImportPath, imported, reason))
			}
		}
	}
	return broken
}

// check returns why a folder must not import something, "" where it may.
func check(folder, layer, imported string) string {
	if below(imported, module) {
		target := layerOf(strings.TrimPrefix(strings.TrimPrefix(imported, module), "/"))
		if target == layer || slices.Contains(layers[layer], target) {
			return ""
		}
		return fmt.Sprintf("the arrows out of %s lead to %s only", layer, orNothing(layers[layer]))
	}
	if list, limited := beside[layer]; limited && strings.Contains(imported, ".") && !belowAny(imported, list) {
		return fmt.Sprintf("beside the standard library %s imports %s only", layer, orNothing(list))
	}
	if rule := never[layer]; slices.Contains(rule.libraries, imported) {
		return rule.reason
	}
	for library, rule := range only {
		if below(imported, library) && !belowAny(folder, rule.folders) {
			return rule.reason
		}
	}
	return ""
}

// layerOf is the layer that a folder belongs to, "" where it belongs to none.
func layerOf(folder string) string {
	for ; folder != "."; folder = path.Dir(folder) {
		if _, known := layers[folder]; known {
			return folder
		}
		if folder == "" {
			break
		}
	}
	return ""
}

// below says whether a path is root or lies under it.
func below(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

func belowAny(p string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return below(p, root) })
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}
