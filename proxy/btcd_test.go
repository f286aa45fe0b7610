package proxy

import (
	"testing"
	"testing/synctest"
)

// TestBlocksComeOverTheConnectionWithTheFilter is a wallet in front of btcd: it asks for blocks first and sets its filter then,
// and a block has the transactions that the filter of its connection chose.
func TestBlocksComeOverTheConnectionWithTheFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, withProfile(t, "bitcoin", nil))
		_, wallet := w.upstream(), w.client()
		wallet.send(`{"jsonrpc":"1.0","id":1,"method":"notifyblocks","params":[]}`)
		own := w.upstream()
		own.answerTo(own.wantAsked("notifyblocks", "[]"), "null")
		wallet.next()
		wallet.send(`{"jsonrpc":"1.0","id":2,"method":"loadtxfilter","params":[true,["1Kz"],[]]}`)
		own.answerTo(own.wantAsked("loadtxfilter", `[true,["1Kz"],[]]`), "null")
		wallet.next()
		for _, event := range []string{
			`{"jsonrpc":"1.0","method":"filteredblockconnected","params":[100,"00",["0100"]],"id":null}`,
			`{"jsonrpc":"1.0","method":"relevanttxaccepted","params":["0100"],"id":null}`,
		} {
			own.send(event)
			wallet.want(event)
		}
		synctest.Wait()
		wallet.wantNothing()
	})
}
