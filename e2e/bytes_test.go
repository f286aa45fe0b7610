package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Transactions of the node's first account, signed beforehand: a contract that answers every call with 42, a contract that
// emits one empty log, and a payment of 1.5 ether to the second account.
const (
	createFortyTwo = `0x02f86f827a6980843b9aca008477359400830186a0808096600a600c600039600a6000f3602a60005260206000f3c001a08ad465277e39a21b4b93aa62564ee75536e424ec96dc2ce4e466cabe7366c574a0264d4dbf9f3100f749d5dab48b18fff8dcd7464453d1dfdfab82eefb95b6fed1`
	createLog      = `0x02f85e827a6901843b9aca008477359400830186a080808560006000a0c001a03dd2571a6dad32879b5a7544c0bd4cdcea621b0b6aa7bc3873b4b65e577ebfa8a073368b139ae76c6ebf7e772e813a4eb28e5fde71abc9b81a2d5231eeb192ab6c`
	payment        = `0x02f874827a6902843b9aca0084773594008252089470997970c51812dc3a010c7d01b50e0d17dc79c88814d1120d7b16000080c080a06df89afa9e695d4786c549878bf2333582363d60aef8d9f2f3a6e7a473651e33a07189f1e5576e63e238b216265efaaf714d2a5bdae5f36da6e818020085219444`

	fortyTwo = `0x5fbdb2315678afecb367f032d93f642f64180aa3` // where the first one puts its contract
)

func call(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"%s","params":[%s]}`, id, method, params)
}

// reads leave the node as it is. The ids are what clients send: numbers, texts, and a number that no double holds.
var reads = []string{
	call(`1`, "web3_clientVersion", ``),
	call(`1`, "eth_chainId", ``),
	call(`"1"`, "net_version", ``),
	call(`9007199254740993`, "eth_blockNumber", ``),
	call(`"6e1f4f0e-9d43-4f5e-8f0c-1f2a3b4c5d6e"`, "eth_accounts", ``),
	call(`0`, "eth_getBalance", `"0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266","latest"`),
	call(`-1`, "eth_getBalance", `"0x70997970c51812dc3a010c7d01b50e0d17dc79c8","0x0"`),
	call(`2`, "eth_getBlockByNumber", `"0x0",true`),
	call(`3`, "eth_getBlockByNumber", `"0x1",true`),
	call(`4`, "eth_getBlockByNumber", `"latest",false`),
	call(`5`, "eth_getBlockByNumber", `"0xffff",false`),
	call(`6`, "eth_getBlockReceipts", `"0x2"`),
	call(`7`, "eth_getTransactionCount", `"0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266","latest"`),
	call(`8`, "eth_getCode", `"`+fortyTwo+`","latest"`),
	call(`9`, "eth_call", `{"to":"`+fortyTwo+`"},"latest"`),
	call(`10`, "eth_estimateGas", `{"from":"0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266","to":"`+fortyTwo+`"}`),
	call(`11`, "eth_getLogs", `{"fromBlock":"0x0","toBlock":"latest"}`),
	call(`12`, "eth_getStorageAt", `"`+fortyTwo+`","0x0","latest"`),
	call(`13`, "web3_sha3", `"0x68656c6c6f"`),
	call(`14`, "eth_getTransactionByHash", `"0x0000000000000000000000000000000000000000000000000000000000000001"`),
	call(`15`, "eth_nope", ``),
	call(`16`, "eth_getBalance", `"not an address"`),
	call(`17`, "eth_call", `{"from":"0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266","to":"`+fortyTwo+`","value":"0xffffffffffffffffffffffff"},"latest"`),
	`{ "params" : [ "0x0" , false ] , "method" : "eth_getBlockByNumber" , "id" : 18 , "jsonrpc" : "2.0" }`,
	`{"jsonrpc":"2.0","id":19,"method":"eth_chainId"}`,
	`[` + call(`1`, "eth_chainId", ``) + `]`,
	`[` + strings.Join([]string{
		call(`20`, "eth_getBlockByNumber", `"0x1",true`),
		call(`20`, "eth_getBalance", `"0x70997970c51812dc3a010c7d01b50e0d17dc79c8","latest"`),
		call(`"x"`, "eth_call", `{"to":"`+fortyTwo+`"},"latest"`),
		call(`22`, "eth_getLogs", `{"fromBlock":"0x0","toBlock":"latest"}`),
	}, ",") + `]`,
}

// TestBytes sends the same requests to one node directly and through idmux, and wants the answers byte for byte. The node
// words some errors by transport, so the direct ones go over the transport that idmux uses upstream.
func TestBytes(t *testing.T) {
	node := startChain(t)
	for i, transaction := range []string{createFortyTwo, createLog} {
		ask(t, node.http, call(`1`, "eth_sendRawTransaction", `"`+transaction+`"`))
		node.awaitBlock(t, i+1)
	}
	combinations(t, func(t *testing.T, down, up string) {
		front := node.through(t, down, up)
		want := ask(t, node.url(up), reads...)
		got := ask(t, front, reads...)
		for i := range reads {
			if got[i] != want[i] {
				t.Errorf("%s\nthrough idmux %s\ndirectly      %s", reads[i], got[i], want[i])
			}
		}
		if !strings.Contains(want[14], "2a\"") {
			t.Errorf("the call of the contract brought %s", want[14])
		}

		pay := call(`"pay"`, "eth_sendRawTransaction", `"`+payment+`"`)
		balance := call(`1`, "eth_getBalance", `"0x70997970c51812dc3a010c7d01b50e0d17dc79c8","latest"`)
		direct := node.undone(t, func() []string { return node.transfer(t, node.url(up), pay, balance) })
		proxied := node.undone(t, func() []string { return node.transfer(t, front, pay, balance) })
		for i, want := range direct {
			if proxied[i] != want {
				t.Errorf("payment, step %d\nthrough idmux %s\ndirectly      %s", i, proxied[i], want)
			}
		}
		if !strings.Contains(direct[0], `"id":"pay","result":"0x`) || !strings.Contains(direct[1], `"0x21e2eb1dbc82d560000"`) {
			t.Errorf("the payment brought %s", direct)
		}
	})
}

// transfer sends a transaction, waits for its block, and asks what has become of it.
func (c chain) transfer(t *testing.T, url, pay, balance string) []string {
	t.Helper()
	answers := ask(t, url, pay)
	c.awaitBlock(t, 3)
	return append(answers, ask(t, url, balance)...)
}

// undone takes back what happens on the chain meanwhile.
func (c chain) undone(t *testing.T, f func() []string) []string {
	t.Helper()
	snapshot := ask(t, c.http, call(`1`, "evm_snapshot", ``))[0]
	_, id, ok := strings.Cut(snapshot, `"result":`)
	if !ok {
		t.Fatalf("no snapshot: %s", snapshot)
	}
	defer func() {
		if back := ask(t, c.http, call(`1`, "evm_revert", strings.TrimSuffix(id, "}")))[0]; !strings.Contains(back, "true") {
			t.Fatalf("the snapshot did not come back: %s", back)
		}
	}()
	return f()
}

// awaitBlock asks the node itself until it has mined a block: it answers a transaction before that.
func (c chain) awaitBlock(t *testing.T, number int) {
	t.Helper()
	want := fmt.Sprintf(`"result":"%#x"`, number)
	limit := time.After(patience)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !strings.Contains(ask(t, c.http, call(`1`, "eth_blockNumber", ``))[0], want) {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("block %d was not mined", number)
		}
	}
}
