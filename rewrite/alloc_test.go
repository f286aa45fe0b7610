package rewrite

import (
	"bytes"
	"testing"
)

// wantNoAllocations runs f often, after it had its chance to grow scratch.
func wantNoAllocations(t *testing.T, name string, f func()) {
	t.Helper()
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	if n := testing.AllocsPerRun(1000, f); n != 0 {
		t.Errorf("%s: %v allocations", name, n)
	}
}

func TestNoAllocations(t *testing.T) {
	call := []byte(`{"jsonrpc":"2.0","id":"one","method":"\u0065cho","params":[[[[{"a":"é"}]]]],"x":1}`)
	batch := bytes.Join([][]byte{[]byte("["), bytes.Repeat(append(call, ','), 50), call, []byte("]")}, nil)
	answer := []byte(`{"jsonrpc":"2.0","result":["a",1,null],"id":"k7qd.7-17"}`)
	bad := []byte(`{"jsonrpc":"2.0","id":1,"ID":2,"method":"m"}`)
	deep := append(append([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":`), bytes.Repeat([]byte("["), 120)...), append(bytes.Repeat([]byte("]"), 120), '}')...)
	instance := Instance("k7qd")
	client, server := Parser{}, Parser{Peer: Server}
	table := NewTable[*int](64, 1024)
	key := Key{Scope: 31}
	one := []byte(`"one"`)
	var out, id []byte

	wantNoAllocations(t, "there and back", func() {
		_, envs, _ := client.Parse(call)
		key.Seq++
		id = instance.AppendText(id[:0], key)
		table.Put(key, 3, nil)
		out = client.AppendRequest(out[:0], call, &envs[0], id, nil)

		_, envs, _ = server.Parse(answer)
		if _, ok := instance.ParseID(envs[0].ID.Of(answer), 3); !ok {
			t.Fatal("not our id")
		}
		if _, v := table.Take(key, 3); v != Taken {
			t.Fatal(v)
		}
		out = AppendResponse(out[:0], answer, &envs[0], one, nil)
	})
	wantNoAllocations(t, "number style", func() {
		k := Key{Scope: 3 | NumberScope, Seq: key.Seq + 1}
		id = AppendNumber(id[:0], k)
		if got, ok := instance.ParseID(id, 3); !ok || got != k {
			t.Fatal(got)
		}
	})
	wantNoAllocations(t, "batch", func() {
		_, envs, fault := client.Parse(batch)
		if len(envs) != 51 || !fault.Ok() {
			t.Fatal(len(envs), fault)
		}
	})
	wantNoAllocations(t, "deep", func() {
		if _, _, fault := client.Parse(deep); !fault.Ok() {
			t.Fatal(fault)
		}
	})
	wantNoAllocations(t, "refused", func() {
		_, envs, _ := client.Parse(bad)
		out = AppendFault(out[:0], envs[0].ID.Of(bad), envs[0].Fault)
		if _, _, fault := client.Parse(bad[:20]); fault.Ok() {
			t.Fatal("half a frame is taken")
		}
	})
	wantNoAllocations(t, "many in flight", func() {
		for range 1000 {
			key.Seq++
			table.Put(key, 3, nil)
		}
		for i := range uint64(1000) {
			table.Take(Key{key.Scope, key.Seq - i}, 3)
		}
	})
}
