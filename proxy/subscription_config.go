package proxy

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idmux/idmux/profiles"
)

// SubscriptionConfig is how the subscriptions of an upstream's profile are treated.
type SubscriptionConfig struct {
	Share       []string      // patterns of methods whose subscriptions with the same params have one subscription upstream
	Grace       time.Duration // how long that one stays when its last client has left
	PerSession  int           // subscriptions of one session; more are refused
	Limit       int           // subscriptions of all sessions on the upstream; more are refused
	Resubscribe time.Duration // how long a lost subscription is asked for again before the client is told; 0: it is told at once
	Early       int           // events of one subscription held until its answer has come; more are dropped
}

// DefaultSubscriptions returns the defaults.
func DefaultSubscriptions() SubscriptionConfig {
	return SubscriptionConfig{Grace: 10 * time.Second, PerSession: 1024, Limit: 65536, Resubscribe: time.Minute, Early: 64}
}

// Validate reports every problem at once, also of what does not go with the rules of a profile, which may be nil.
func (c *SubscriptionConfig) Validate(rules *profiles.Rules) error {
	errs := patternProblems("subscriptions.share", c.Share)
	for i, method := range c.Share {
		if text := shareProblem(rules, method); text != "" {
			errs = append(errs, fmt.Errorf("subscriptions.share[%d]: %s", i, text))
		}
	}
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("subscriptions."+key+": "+format, args...))
	}
	if c.Grace < 0 {
		bad("grace", "must not be negative")
	}
	if c.PerSession < 1 {
		bad("per_session", "must be at least 1, not %d", c.PerSession)
	}
	if c.Limit < 1 {
		bad("limit", "must be at least 1, not %d", c.Limit)
	}
	if c.Resubscribe < 0 {
		bad("resubscribe", "must not be negative")
	}
	if c.Early < 0 {
		bad("early", "must not be negative")
	}
	return errors.Join(errs...)
}

// shareProblem says why the subscriptions of a method cannot be shared, "" if they can. Of a pattern at least one must.
func shareProblem(rules *profiles.Rules, method string) string {
	if rules == nil || method == "" {
		return ""
	}
	share := compile([]string{method})
	begins := func(s *profiles.Sub) bool {
		return slices.ContainsFunc(s.Subscribe, func(m string) bool { return share.match([]byte(m)) })
	}
	if op := rules.Client([]byte(method)); op != nil && op.Subscribe != nil {
		begins = func(s *profiles.Sub) bool { return s == op.Subscribe }
	}
	private := false
	for _, s := range rules.Subscriptions {
		switch {
		case !begins(s):
		case !s.Private && !s.Bearer:
			return ""
		default:
			private = true
		}
	}
	if private {
		return fmt.Sprintf("%q cannot be shared, says profile %s: each client needs its own", method, rules.Name)
	}
	return fmt.Sprintf("%q begins no subscription in profile %s", method, rules.Name)
}
