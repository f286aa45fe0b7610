package proxy

import (
	"errors"
	"fmt"
	"time"
)

// SubscriptionConfig bounds the subscriptions of an upstream, and says which are shared.
type SubscriptionConfig struct {
	Share       []string      // patterns of subscribe methods: clients that ask for the same, byte for byte, share one
	Grace       time.Duration // how long a shared one is kept when its last client has left
	PerSession  int           // of one client; more are refused
	Limit       int           // of all clients; more are refused
	Resubscribe time.Duration // how long it is tried to ask again for one whose connection was lost
	Early       int           // events held for a connection, or a subscription, until the subscribe is answered
}

// DefaultSubscriptions returns the defaults.
func DefaultSubscriptions() SubscriptionConfig {
	return SubscriptionConfig{
		Grace: 10 * time.Second, PerSession: 1024, Limit: 65536, Resubscribe: time.Minute, Early: 64,
	}
}

// Validate reports every problem at once.
func (c *SubscriptionConfig) Validate() error {
	var errs []error
	atLeast := func(key string, n, least int) {
		if n < least {
			errs = append(errs, fmt.Errorf("subscriptions.%s: must be at least %d, not %d", key, least, n))
		}
	}
	atLeast("per_session", c.PerSession, 1)
	atLeast("limit", c.Limit, 1)
	atLeast("early", c.Early, 0)
	if c.Grace < 0 {
		errs = append(errs, errors.New("subscriptions.grace: must not be negative"))
	}
	if c.Resubscribe <= 0 {
		errs = append(errs, fmt.Errorf("subscriptions.resubscribe: must be more than zero, not %v", c.Resubscribe))
	}
	return errors.Join(append(errs, patternProblems("subscriptions.share", c.Share)...)...)
}
