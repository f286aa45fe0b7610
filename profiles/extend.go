package profiles

import (
	"cmp"
	"maps"
	"slices"
)

// extend returns p with the rules of base, which extends nothing any more. A subscription or token of p takes the place of
// the one of base with the same name. Where the first rule counts that fits, those of p come first.
func extend(base, p *Profile) (*Profile, error) {
	whole := *p
	whole.Extends = ""
	whole.Legacy = p.Legacy || base.Legacy
	whole.ErrorCode = cmp.Or(p.ErrorCode, base.ErrorCode)
	whole.Headers = union(base.Headers, p.Headers)
	whole.Card = cmp.Or(p.Card, base.Card)
	whole.StrictIDs = p.StrictIDs || base.StrictIDs
	whole.IDSuffixes = union(base.IDSuffixes, p.IDSuffixes)
	whole.Dedicated = union(base.Dedicated, p.Dedicated)
	if p.Handshake == nil {
		whole.Handshake = base.Handshake
	}
	whole.References = slices.Concat(p.References, base.References)
	whole.Questions = slices.Concat(p.Questions, base.Questions)
	whole.Answers = slices.Concat(p.Answers, base.Answers)
	whole.News = slices.Concat(p.News, base.News)
	whole.Shows = slices.Concat(p.Shows, base.Shows)
	whole.Notices = slices.Concat(p.Notices, base.Notices)

	if p.Document == nil {
		whole.Document = base.Document
	}

	rest := *base
	rest.Tokens = without(base.Tokens, p.Tokens, func(t Token) string { return t.Name })
	rest.Subscriptions = without(base.Subscriptions, p.Subscriptions, func(s Subscription) string { return s.Name })
	whole.Tokens = slices.Concat(rest.Tokens, p.Tokens)
	whole.Subscriptions = slices.Concat(rest.Subscriptions, p.Subscriptions)
	rest.Owned = without(base.Owned, p.Owned, func(o Owned) string { return o.Name })
	whole.Owned = slices.Concat(rest.Owned, p.Owned)
	whole.Levels = slices.Concat(base.Levels, p.Levels)
	whole.Streams = slices.Concat(base.Streams, p.Streams)

	whole.Status = maps.Clone(base.Status)
	if whole.Status == nil {
		whole.Status = p.Status
	} else {
		maps.Copy(whole.Status, p.Status)
	}
	c := new(checker)
	c.twice(p, &rest)
	if p.source != nil {
		return &whole, p.source.errors(c.problems)
	}
	return &whole, nil
}

// without returns those of all whose name none of others has.
func without[T any](all, others []T, name func(T) string) []T {
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool {
		return name(one) != "" && slices.ContainsFunc(others, func(o T) bool { return name(o) == name(one) })
	})
}

// union returns the texts of a, and then those of b that are not in a.
func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
