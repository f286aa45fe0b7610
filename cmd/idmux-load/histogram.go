package main

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	subBits = 6 // 64 steps for each doubling: values are off by 0.8 % at most
	steps   = 1 << subBits
	buckets = (64 - subBits) * steps
	shards  = 8
)

// histogram counts durations. Safe for concurrent use; read it when nobody
// records any more.
type histogram struct {
	shards [shards]histogramShard
}

type histogramShard struct {
	counts [buckets]atomic.Uint32
	max    atomic.Int64
}

// record counts d. Recorders with different numbers disturb each other less.
func (h *histogram) record(number uint64, d time.Duration) {
	d = max(d, 0)
	s := &h.shards[number%shards]
	s.counts[bucketOf(uint64(d))].Add(1)
	for {
		seen := s.max.Load()
		if int64(d) <= seen || s.max.CompareAndSwap(seen, int64(d)) {
			return
		}
	}
}

// quantiles returns the durations below which the given shares lie, which have
// to ascend.
func (h *histogram) quantiles(shares ...float64) []time.Duration {
	var sums [buckets]uint64
	var total uint64
	for i := range h.shards {
		for j := range h.shards[i].counts {
			n := uint64(h.shards[i].counts[j].Load())
			sums[j] += n
			total += n
		}
	}
	found := make([]time.Duration, len(shares))
	var below uint64
	next := 0
	for j, n := range sums {
		below += n
		for next < len(shares) && total > 0 && float64(below) >= shares[next]*float64(total) {
			found[next] = min(middleOf(j), h.max())
			next++
		}
	}
	return found
}

func (h *histogram) max() time.Duration {
	var most int64
	for i := range h.shards {
		most = max(most, h.shards[i].max.Load())
	}
	return time.Duration(most)
}

func bucketOf(v uint64) int {
	if v < 2*steps {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift*steps + int(v>>shift)
}

func middleOf(bucket int) time.Duration {
	if bucket < 2*steps {
		return time.Duration(bucket)
	}
	shift := bucket/steps - 1
	return time.Duration(uint64(bucket-shift*steps)<<shift + uint64(1)<<shift/2)
}
