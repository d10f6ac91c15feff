package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/sluice-project/sluice/topic"
)

var concurrentCases = []testCase{
	{"of many that set a key, one wins each time", func(k *kit) {
		const workers, rounds = 8, 20
		k.put("counter", "0", 0)
		work(workers, func(int) error {
			for range rounds {
				if err := increment(k, "counter"); err != nil {
					return err
				}
			}
			return nil
		}, k)
		item, err := k.store.Meta().Get(k.ctx, "counter")
		k.must(err)
		if string(item.Value) != strconv.Itoa(workers*rounds) {
			k.t.Fatalf("counter is %s, want %d", item.Value, workers*rounds)
		}
	}},
	{"a list is of one moment", func(k *kit) {
		// A key of the first kind is deleted before the next is made, and one of the second
		// kind is made before the previous is deleted. So there is never more than one of
		// the first kind, and always one of the second.
		for i := range 300 {
			k.put(fmt.Sprintf("list/filler/%d", i), "x", 0)
		}
		m := k.store.Meta()
		one, two := k.put("list/one/0", "", 0), k.put("list/two/0", "", 0)
		stop := make(chan struct{})
		var moving sync.WaitGroup
		var moveErr error
		moving.Go(func() {
			for i := 1; moveErr == nil; i++ {
				select {
				case <-stop:
					return
				default:
				}
				one, moveErr = move(k, "list/one/", i, one, true)
				if moveErr == nil {
					two, moveErr = move(k, "list/two/", i, two, false)
				}
			}
		})
		var listErr error
		for range 60 {
			items, err := m.List(k.ctx, "list/")
			if listErr = errors.Join(err, oneMoment(items)); listErr != nil {
				break
			}
		}
		close(stop)
		moving.Wait()
		k.must(errors.Join(moveErr, listErr))
	}},
	{"trims do not disturb appends and reads", func(k *kit) {
		l := k.log("busy")
		const last = 400
		work(3, func(worker int) error {
			for {
				first, end, err := l.Ends(k.ctx)
				if err != nil {
					return err
				}
				if worker == 0 && end > 20 {
					err = l.Trim(k.ctx, end-20)
				}
				if err != nil {
					return err
				}
				got, err := l.Read(k.ctx, first, 2000)
				if err != nil {
					return err
				}
				for i, e := range got {
					if err := same(got[i:i+1], []topic.Entry{entry(e.Sequence, 100)}); err != nil {
						return err
					}
				}
				if end == last {
					return nil
				}
				if worker == 2 {
					batch := entries(end+1, min(end+10, last), 100)
					for _, err := range k.append(l, batch...) {
						if err != nil {
							return err
						}
					}
				}
			}
		}, k)
		k.must(l.Trim(k.ctx, last-4))
		k.holds(l, entries(last-4, last, 100)...)
	}},
	{"logs are used at once", func(k *kit) {
		work(8, func(worker int) error {
			l, err := k.store.OpenLog(k.ctx, fmt.Sprint("log", worker/2), onOne)
			if err != nil || worker%2 == 1 {
				return errors.Join(err, l.Wait(k.ctx, 100))
			}
			for _, err := range k.append(l, entries(1, 100, 100)...) {
				if err != nil {
					return err
				}
			}
			return nil
		}, k)
		for i := range 4 {
			k.holds(k.log(fmt.Sprint("log", i)), entries(1, 100, 100)...)
		}
	}},
}

// work runs a function in several goroutines.
func work(workers int, do func(worker int) error, k *kit) {
	k.t.Helper()
	errs := make([]error, workers)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() { errs[worker] = do(worker) })
	}
	group.Wait()
	k.must(errors.Join(errs...))
}

// increment adds one to a key, by compare-and-set.
func increment(k *kit, key string) error {
	m := k.store.Meta()
	for {
		item, err := m.Get(k.ctx, key)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(item.Value))
		if err != nil {
			return err
		}
		_, err = m.Put(k.ctx, key, []byte(strconv.Itoa(n+1)), item.Revision)
		if !errors.Is(err, topic.ErrConflict) {
			return err
		}
	}
}

// move deletes key i-1 and makes key i, in this order or the reverse.
func move(k *kit, prefix string, i int, revision uint64, deleteFirst bool) (uint64, error) {
	m := k.store.Meta()
	if deleteFirst {
		if err := m.Delete(k.ctx, prefix+strconv.Itoa(i-1), revision); err != nil {
			return 0, err
		}
	}
	next, err := m.Put(k.ctx, prefix+strconv.Itoa(i), nil, 0)
	if err == nil && !deleteFirst {
		err = m.Delete(k.ctx, prefix+strconv.Itoa(i-1), revision)
	}
	return next, err
}

// oneMoment returns why a list cannot be the state of one moment, or nil.
func oneMoment(items []topic.Item) error {
	var ones, twos, fillers int
	for i, item := range items {
		if i > 0 && item.Key <= items[i-1].Key {
			return fmt.Errorf("key %q comes after %q", item.Key, items[i-1].Key)
		}
		switch item.Key[:len("list/one")] {
		case "list/one":
			ones++
		case "list/two":
			twos++
		default:
			fillers++
		}
	}
	if ones > 1 || twos < 1 || twos > 2 || fillers != 300 {
		return fmt.Errorf("a list has %d of the first kind, %d of the second and %d others: no moment had that", ones, twos, fillers)
	}
	return nil
}
