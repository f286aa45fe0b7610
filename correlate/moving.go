package correlate

import "slices"

// Lost notes that a connection is lost, and returns the feeds that were on it. Each is moving now, until Asking and Open,
// or Finish. Those that nobody is left to use are ended instead; those known to its whole endpoint stay.
func (b *Feeds[O, C]) Lost(conn C, now, giveUp int64) []*Feed[O, C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.early, conn)
	for k, o := range b.orphans {
		if o.conn == conn {
			delete(b.orphans, k)
		}
	}
	var all []*Feed[O, C]
	for i, list := range b.byValue {
		if i.conn == conn && !list[0].Rule.Anywhere {
			all = append(all, list...)
			delete(b.byValue, i)
		}
	}
	kept := all[:0]
	for _, f := range all {
		f.state, f.giveUp, f.retryAt, f.lostAt = moving, giveUp, 0, now
		if len(f.subs) == 0 {
			b.forget(f)
			continue
		}
		b.restive[f] = struct{}{}
		kept = append(kept, f)
	}
	return kept
}

// Asking notes that a moving feed is asked for again. False: it must not be, for it is not moving any more, or nobody is
// left.
func (b *Feeds[O, C]) Asking(f *Feed[O, C]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.state != moving || len(f.subs) == 0 {
		return false
	}
	f.state = asking
	f.tries++
	delete(b.restive, f)
	b.asked(f)
	return true
}

// Retry notes that asking again has failed, and that it is to be tried once more at a time. False: that would be too late, and
// the feed is to be finished.
func (b *Feeds[O, C]) Retry(f *Feed[O, C], at int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.state != asking {
		return true
	}
	b.answered(f)
	b.dropEarly()
	if len(f.subs) == 0 {
		b.forget(f)
		return true
	}
	f.state, f.retryAt = moving, at
	b.restive[f] = struct{}{}
	return at < f.giveUp
}

// Trouble is since when a feed's events are missed, and how often it was asked for since; 0 where it was not lost.
func (b *Feeds[O, C]) Trouble(f *Feed[O, C]) (since int64, tries int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f.lostAt, f.tries
}

// Hasten has every moving feed asked for again at the next Due.
func (b *Feeds[O, C]) Hasten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.restive {
		f.retryAt = 0
	}
}

// Due returns what is to be done by now: feeds to ask for again, feeds to give up, and feeds to end upstream, which have
// ended here.
func (b *Feeds[O, C]) Due(now int64) (again, over []*Feed[O, C], endings []Ending[O, C]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	endings = slices.Concat(b.unsaid, b.ripe)
	b.unsaid, b.ripe = nil, nil
	for f := range b.restive {
		switch {
		case f.state == moving && f.giveUp <= now:
			over = append(over, f)
		case f.state == moving && f.retryAt <= now:
			again = append(again, f)
		case f.state == live && f.endAt != 0 && f.endAt <= now && len(f.subs) == 0:
			if e, told := b.end(f); told {
				endings = append(endings, e)
			}
		}
	}
	return again, over, endings
}

// Expire ends what bearers have not used since a time, and returns what is to be ended upstream.
func (b *Feeds[O, C]) Expire(now int64) []Ending[O, C] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var none O
	var all []Ending[O, C]
	for _, s := range b.owned[none] {
		if s.used == 0 {
			s.used = now // it was made just now
		}
		if s.Feed.Rule.Bearer && s.told && s.used+int64(s.Feed.Rule.Expires) <= now {
			if e, told := b.drop(s, 0); told {
				all = append(all, e)
			}
		}
	}
	return all
}

// Idle reports whether Due and Expire have nothing to look at.
func (b *Feeds[O, C]) Idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var none O
	return len(b.restive) == 0 && len(b.unsaid)+len(b.ripe) == 0 && len(b.owned[none]) == 0
}
