package publisher

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Dialect is how one protocol subscribes.
type Dialect struct {
	Profile     string // of idmux
	Subscribe   string
	Notify      string
	Unsubscribe string

	params string                        // of the subscribe, %s being the topic, a JSON string
	form   func(n int) string            // the token of the n-th subscription of a connection
	end    func(handle, t string) string // the params of the unsubscribe

	// Keyless says that events name no subscription: a connection has one, or it has not.
	Keyless bool
	// Stream says that events are further responses to the subscribe, and unsubscribing is by topic.
	Stream bool
	// Own says that a client that subscribes has a connection of its own, and ends with it.
	Own bool
}

func byHandle(handle, _ string) string { return "[" + handle + "]" }

// Dialects are those of the profiles that have subscriptions.
var Dialects = []Dialect{
	{
		Profile: "ethereum", Subscribe: "eth_subscribe", Notify: "eth_subscription", Unsubscribe: "eth_unsubscribe",
		params: `["logs",{"topics":[%s]}]`, form: func(n int) string { return fmt.Sprintf(`"0x%x"`, n) }, end: byHandle,
	},
	{
		Profile: "solana", Subscribe: "accountSubscribe", Notify: "accountNotification", Unsubscribe: "accountUnsubscribe",
		params: `[%s,{"encoding":"base64"}]`, form: strconv.Itoa, end: byHandle,
	},
	{
		Profile: "substrate", Subscribe: "state_subscribeStorage", Notify: "state_storage", Unsubscribe: "state_unsubscribeStorage",
		params: `[[%s]]`, form: func(n int) string { return fmt.Sprintf(`"%d"`, n) }, end: byHandle,
	},
	{
		Profile: "tendermint", Subscribe: "subscribe", Unsubscribe: "unsubscribe", Stream: true, Own: true,
		params: `{"query":%s}`, end: func(_, t string) string { return `{"query":` + t + `}` },
	},
	{
		Profile: "bitcoin", Subscribe: "notifyblocks", Notify: "blockconnected", Unsubscribe: "stopnotifyblocks", Keyless: true, Own: true,
		params: `[]`, end: func(string, string) string { return `[]` },
	},
}

// subscribeParams are the params of a subscribe to a topic.
func (d *Dialect) subscribeParams(topic string) string {
	if d.Keyless {
		return d.params
	}
	return fmt.Sprintf(d.params, strconv.Quote(topic))
}

// token is what the n-th subscription of a connection is called: the same on every connection, a number, a text of the same
// digits, and the id of the very request by turns.
func (d *Dialect) token(n int, id string) string {
	switch {
	case d.Keyless:
		return ""
	case d.Stream:
		return id
	}
	switch n % 4 {
	case 0:
		return d.form(n / 4)
	case 1:
		return strconv.Itoa(n/4 + 1000)
	case 2:
		return `"` + strconv.Itoa(n/4+1000) + `"`
	}
	return id
}

// opened is the result of a subscribe.
func (d *Dialect) opened(token string) string {
	switch {
	case d.Keyless:
		return "null"
	case d.Stream:
		return "{}"
	}
	return token
}

// Event is what a subscription brings.
type Event struct {
	For    string `json:"for"`    // params of the subscribe
	Serial int    `json:"serial"` // of the subscription, unique at the backend
	N      int    `json:"n"`      // of the event in the subscription, from 1
}

// event is the message with an event.
func (d *Dialect) event(token string, e Event) string {
	body, err := json.Marshal(e)
	if err != nil {
		panic("publisher: " + err.Error())
	}
	switch {
	case d.Keyless:
		return fmt.Sprintf(`{"jsonrpc":"1.0","method":"%s","params":[%s],"id":null}`, d.Notify, body)
	case d.Stream:
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"data":%s}}`, suffixed(token, e.N), body)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"%s","params":{"result":%s,"subscription":%s}}`, d.Notify, body, token)
}

// suffixed is the id of a further response: older versions add to it.
func suffixed(id string, n int) string {
	if n%2 == 0 && strings.HasPrefix(id, `"`) {
		return id[:len(id)-1] + `#event"`
	}
	return id
}

// note is a message with an event, as a client reads it.
type note struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code int
		Data struct{ Reason string }
	} `json:"error"`
}

// read returns the event in a message, and the handle that it is for; false where it has none.
func (d *Dialect) read(m *note) (handle string, e Event, ok bool) {
	switch {
	case d.Stream:
		var body struct{ Data *Event }
		if m.Method != "" || json.Unmarshal(m.Result, &body) != nil || body.Data == nil {
			return "", e, false
		}
		id := strings.Replace(string(m.ID), `#event"`, `"`, 1)
		return id, *body.Data, true
	case m.Method != d.Notify:
		return "", e, false
	case d.Keyless:
		var all []Event
		if json.Unmarshal(m.Params, &all) != nil || len(all) != 1 {
			return "", e, false
		}
		return "", all[0], true
	}
	var body struct {
		Subscription json.RawMessage
		Result       Event
	}
	if json.Unmarshal(m.Params, &body) != nil {
		return "", e, false
	}
	return string(body.Subscription), body.Result, true
}
