package correlate

import "testing"

// TestQuestionsAreTakenOnce by the client that was asked, which may be asked so many at a time.
func TestQuestionsAreTakenOnce(t *testing.T) {
	b := NewQuestions[int, int](2)
	one, _ := b.Ask(1, 10, []byte(`"x"`), nil, 50)
	two, _ := b.Ask(1, 11, []byte(`"x"`), nil, 60)
	other, _ := b.Ask(2, 10, []byte(`7`), nil, 40)
	if one != 1 || two != 2 || other != 1 {
		t.Errorf("asked under %d, %d, %d", one, two, other)
	}
	if _, ok := b.Ask(1, 10, nil, nil, 0); ok {
		t.Error("asked over the limit")
	}
	if _, ok := b.Take(2, two); ok {
		t.Error("taken by another client")
	}
	q, ok := b.Take(1, one)
	if !ok || string(q.ID) != `"x"` || q.Conn != 10 {
		t.Errorf("took %+v, %v", q, ok)
	}
	if _, ok := b.Take(1, one); ok {
		t.Error("taken twice")
	}
	if again, ok := b.Ask(1, 10, nil, nil, 70); !ok || again != 3 {
		t.Errorf("asked under %d, %v", again, ok)
	}
	if b.Len() != 3 {
		t.Errorf("%d are open", b.Len())
	}
}

// TestQuestionsEnd with their deadline, their connection or their client.
func TestQuestionsEnd(t *testing.T) {
	b := NewQuestions[int, int](9)
	b.Ask(1, 10, []byte(`1`), nil, 50)
	b.Ask(1, 11, []byte(`1`), nil, 60)
	b.Ask(2, 10, []byte(`2`), nil, 40)
	if due := b.Due(50); len(due) != 2 {
		t.Errorf("%d are due", len(due))
	}
	if on := b.On(10); len(on) != 2 {
		t.Errorf("%d on the connection", len(on))
	}
	is := func(id string) func([]byte) bool { return func(b []byte) bool { return string(b) == id } }
	if q, ok := b.Named(10, is("2")); !ok || q.Owner != 2 {
		t.Errorf("named %+v, %v", q, ok)
	}
	if _, ok := b.Named(11, is("2")); ok {
		t.Error("named on another connection")
	}
	if all := b.Leave(1); len(all) != 2 || b.Len() != 1 {
		t.Errorf("%d were left open", len(all))
	}
	if all := b.Leave(1); all != nil {
		t.Error("left twice")
	}
}
