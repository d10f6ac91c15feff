package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/pebblestore"
)

// The power fails twenty times while three tenants upload and their jobs run. The disk keeps synced
// data and an arbitrary part of the rest. All acknowledged jobs are there afterwards, every job
// runs, and sums are exact.
func TestPowerLoss(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &powerLoss{t: t, disk: vfs.NewCrashableMem(), random: rand.New(rand.NewPCG(seed, 7)), acknowledged: map[string]int64{}}
				for range 20 {
					p.run(time.Duration(50+p.random.IntN(3000)) * time.Millisecond)
				}
				p.finish()
			})
		})
	}
}

const (
	powerTenants = 3
	powerJobs    = 3000
	powerChunk   = 100
)

type powerLoss struct {
	t            *testing.T
	disk         *vfs.MemFS
	random       *rand.Rand
	acknowledged map[string]int64
}

// open starts an engine on the data of the disk.
func (p *powerLoss) open() (*pebblestore.Store, *engine.Engine) {
	p.t.Helper()
	log := slog.New(slog.DiscardHandler)
	config := bulk.Config{RequestsPerSecond: 300, Workers: 20}
	store, err := pebblestore.Open("data", pebblestore.Options{FS: p.disk, Bulk: config, Logger: log})
	if err != nil {
		p.t.Fatal(err)
	}
	mux := bulk.NewMux()
	mux.HandleFunc("call", func(_ context.Context, job *bulk.Job) ([]byte, error) {
		time.Sleep(20 * time.Millisecond)
		if job.Attempt == 1 && job.Index%50 == 0 {
			return nil, errors.New("not at the first attempt")
		}
		return job.Payload, nil
	})
	engine, err := engine.New(store, mux, config, engine.WithLogger(log))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := engine.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	return store, engine
}

func (p *powerLoss) close(store *pebblestore.Store, engine *engine.Engine) {
	p.t.Helper()
	if err := errors.Join(engine.Stop(context.Background()), store.Close()); err != nil {
		p.t.Error(err)
	}
}

// run uploads and works for a while; then the power fails.
func (p *powerLoss) run(d time.Duration) {
	store, engine := p.open()
	over := time.Now().Add(d)
	for tenant := range powerTenants {
		p.upload(engine, fmt.Sprint("action-", tenant), over)
	}
	time.Sleep(time.Until(over))
	left := p.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: p.random.IntN(100), RNG: p.random})
	p.close(store, engine)
	p.disk = left
}

// upload continues the upload of an action until it is sealed or the time is over.
func (p *powerLoss) upload(engine *engine.Engine, id string, over time.Time) {
	p.t.Helper()
	ctx := context.Background()
	action, _, err := engine.Create(ctx, bulk.Spec{ID: id, Tenant: "tenant of " + id, Type: "call", Aggregate: []string{"count", "sum:n"}})
	if err != nil {
		p.t.Fatal(err)
	}
	if action.Received < p.acknowledged[id] {
		p.t.Fatalf("%s has %d jobs after the power failed, but %d were acknowledged", id, action.Received, p.acknowledged[id])
	}
	for sent := action.Received; sent < powerJobs && time.Now().Before(over); {
		chunk := make([][]byte, powerChunk)
		for i := range chunk {
			chunk[i] = fmt.Appendf(nil, `{"n":"%d.5"}`, sent+int64(i))
		}
		if sent, err = engine.Append(ctx, id, sent, chunk); err != nil {
			p.t.Fatal(err)
		}
		p.acknowledged[id] = sent
		time.Sleep(time.Duration(p.random.IntN(60)) * time.Millisecond)
	}
	if p.acknowledged[id] >= powerJobs && action.Status == bulk.Created {
		if _, err := engine.Seal(ctx, id, p.acknowledged[id]); err != nil {
			p.t.Fatal(err)
		}
	}
}

// finish lets everything complete and checks it.
func (p *powerLoss) finish() {
	store, engine := p.open()
	defer p.close(store, engine)
	for tenant := range powerTenants {
		id := fmt.Sprint("action-", tenant)
		p.upload(engine, id, time.Now().Add(time.Hour))
		var a bulk.Action
		if err := engine.Watch(context.Background(), id, 100*time.Millisecond, func(now bulk.Action) error { a = now; return nil }); err != nil {
			p.t.Fatal(err)
		}
		jobs := p.acknowledged[id]
		sum := fmt.Sprintf(`"%d.%d"`, (jobs*(jobs-1)+jobs)/2, (jobs%2)*5)
		if a.Status != bulk.Completed || a.Succeeded != jobs || string(a.Result["sum:n"]) != sum || string(a.Result["count"]) != fmt.Sprint(jobs) {
			p.t.Errorf("%s is %s: %d of %d jobs succeeded, result %s; want a sum of %s", id, a.Status, a.Succeeded, jobs, a.Result, sum)
		}
	}
}
