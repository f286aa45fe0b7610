package proxy

import (
	"testing"
	"time"

	"github.com/idmux/idmux/profiles"
)

func TestSubscriptionConfig(t *testing.T) {
	rules, err := profiles.Load("ethereum")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		change func(c *SubscriptionConfig)
		rules  *profiles.Rules
		want   string
	}{
		{func(*SubscriptionConfig) {}, rules, ""},
		{func(c *SubscriptionConfig) { *c = SubscriptionConfig{PerSession: 1, Limit: 1} }, rules, ""},
		{func(c *SubscriptionConfig) { c.Share = []string{"eth_subscribe", "debug_subscribe", "*"} }, rules, ""},
		{func(c *SubscriptionConfig) { c.Share = []string{"eth_call"} }, nil, ""},
		{
			func(c *SubscriptionConfig) { c.Share = []string{"eth_call"} }, rules,
			`subscriptions.share[0]: "eth_call" begins no subscription in profile ethereum`,
		},
		{
			func(c *SubscriptionConfig) { c.Share = []string{"eth_subscribe", "eth_new*"} }, rules,
			`subscriptions.share[1]: "eth_new*" cannot be shared, says profile ethereum: each client needs its own`,
		},
		{func(c *SubscriptionConfig) { c.Share = []string{""} }, rules, "subscriptions.share[0]: an empty pattern matches nothing"},
		{func(c *SubscriptionConfig) { c.Grace = -1 }, nil, "subscriptions.grace: must not be negative"},
		{func(c *SubscriptionConfig) { c.PerSession = 0 }, nil, "subscriptions.per_session: must be at least 1, not 0"},
		{func(c *SubscriptionConfig) { c.Limit = -1 }, nil, "subscriptions.limit: must be at least 1, not -1"},
		{func(c *SubscriptionConfig) { c.Resubscribe = -time.Second }, nil, "subscriptions.resubscribe: must not be negative"},
		{func(c *SubscriptionConfig) { c.Early = -1 }, nil, "subscriptions.early: must not be negative"},
		{
			func(c *SubscriptionConfig) { c.Grace, c.Early = -1, -1 }, nil,
			"subscriptions.grace: must not be negative\nsubscriptions.early: must not be negative",
		},
	} {
		c := DefaultSubscriptions()
		test.change(&c)
		got := ""
		if err := c.Validate(test.rules); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: %q, want %q", c, got, test.want)
		}
	}
}
