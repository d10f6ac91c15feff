package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
)

// ownBrokers are the brokers whose programs come with this module or Debian.
func ownBrokers() []Broker {
	return slices.DeleteFunc(environment.Brokers(), func(b Broker) bool { return b.Name == "klite" })
}

// Every broker accepts all records, over one and several partitions, and stores them; Kafka brokers
// return them.
func TestProduce(t *testing.T) {
	for _, broker := range ownBrokers() {
		t.Run(broker.Name, func(t *testing.T) {
			stream := Stream{Bytes: PayloadBytes, Partitions: 3, For: 200 * time.Millisecond}
			produced, err := Produce(t.Context(), broker, stream, broker.Name == "sluice")
			if err != nil || produced.Sent.Jobs == 0 || produced.Sent.Took < stream.For {
				t.Fatalf("produced %+v: %v", produced, err)
			}
			if produced.SentCPU <= 0 || produced.SentCPU > 10*time.Second {
				t.Errorf("the broker used %s of a processor in %s", produced.SentCPU, produced.Sent.Took)
			}
			if broker.Name == "sluice" && produced.Read.Jobs != produced.Sent.Jobs {
				t.Errorf("read %d records of %d", produced.Read.Jobs, produced.Sent.Jobs)
			}
		})
	}
}

func TestOnlyKafkaIsRead(t *testing.T) {
	broker := Broker{Name: "other", Start: func(context.Context) (Server, error) { return &losingServer{}, nil }}
	if _, err := Produce(t.Context(), broker, Stream{Bytes: 1, Partitions: 1}, true); err == nil {
		t.Error("a broker that does not speak Kafka was read")
	}
}

func TestLatencies(t *testing.T) {
	for _, broker := range ownBrokers() {
		t.Run(broker.Name, func(t *testing.T) {
			alone, err := OneAtATime(t.Context(), broker, 1, 200*time.Millisecond)
			if err != nil || alone.Records == 0 || alone.Median <= 0 || alone.P99 < alone.Median {
				t.Errorf("one at a time: %+v, %v", alone, err)
			}
			atLowerRates(t, 500, func(rate float64) error {
				paced, err := AtRate(t.Context(), broker, rate, time.Second)
				if err == nil && (math.Abs(float64(paced.Records)-rate) > 1 || paced.P99 < paced.Median) {
					t.Errorf("at %.0f/s for 1 s: %+v", rate, paced)
				}
				return err
			})
		})
	}
}

// atLowerRates measures at half of the rate as long as a busy machine cannot keep up.
func atLowerRates(t *testing.T, rate float64, measure func(rate float64) error) {
	t.Helper()
	err := measure(rate)
	for ; errors.Is(err, ErrBehind) && rate >= 20; err = measure(rate) {
		rate /= 2
	}
	if err != nil {
		t.Errorf("at %.0f/s: %v", rate, err)
	}
}

func TestBySettings(t *testing.T) {
	settings := SluiceSettings{Sync: time.Second, Linger: 10 * time.Millisecond}
	if got, want := settings.String(), "sync 1s, linger 10ms"; got != want {
		t.Errorf("settings are called %q, want %q", got, want)
	}
	effect, err := environment.BySettings(t.Context(), settings, 300*time.Millisecond)
	if err != nil || effect.Peak == 0 || effect.Many.Records < SettingsProducers {
		t.Fatalf("measured %+v: %v", effect, err)
	}
	// The linger applies: a single append waits for it.
	if effect.Alone.Median < settings.Linger {
		t.Errorf("one at a time takes %s, less than the linger of %s", effect.Alone.Median, settings.Linger)
	}
}

func TestView(t *testing.T) {
	v, err := environment.View(t.Context(), 20_000)
	if err != nil {
		t.Fatal(err)
	}
	if v.Whole < 20_000*PayloadBytes || v.Shown < 200*PayloadBytes || v.Share() > 0.05 {
		t.Errorf("viewed %+v, %.1f %%: want about 1 %%", v, 100*v.Share())
	}
}

func TestQueue(t *testing.T) {
	if w, err := environment.Queue(t.Context(), 20_000); err != nil || w.Sluice <= 0 || w.Redis <= 0 {
		t.Errorf("%+v, %v", w, err)
	}
}

// Delayed records appear once and not too early, also over a kill of the broker.
func TestDelay(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart=", restart), func(t *testing.T) {
			t.Parallel()
			const after = 2 * time.Second
			late, err := environment.Delay(t.Context(), 500, after, 200*time.Millisecond, restart)
			for longer := 2 * after; errors.Is(err, ErrBehind) && longer < measureWithin; longer *= 2 { // a busy machine
				late, err = environment.Delay(t.Context(), 500, longer, 200*time.Millisecond, restart)
			}
			if err != nil || late.Records != 500 || late.Median < 0 || late.Most < late.P99 || late.P99 < late.Median {
				t.Errorf("delayed %+v, %v", late, err)
			}
		})
	}
}

// losingServer acknowledges records and loses them.
type losingServer struct{ sent atomic.Int64 }

func (s *losingServer) Line(context.Context, int) (Line, error) { return &losingLine{s}, nil }
func (s *losingServer) Kept(context.Context) (int, error)       { return int(s.sent.Load()) * 9 / 10, nil }
func (s *losingServer) CPU() (time.Duration, error)             { return 0, nil }
func (s *losingServer) Stop() error                             { return nil }

type losingLine struct{ server *losingServer }

func (l *losingLine) Send(_ context.Context, _ int, _ []byte, answered func(error)) error {
	l.server.sent.Add(1)
	answered(nil)
	return nil
}
func (l *losingLine) Flush(context.Context) error { return nil }
func (l *losingLine) Close() error                { return nil }

// A broker that loses records is an error in every measure, not a faster run.
func TestLostRecordsAreAnError(t *testing.T) {
	broker := Broker{Name: "losing", Start: func(context.Context) (Server, error) { return &losingServer{}, nil }}
	_, produceErr := Produce(t.Context(), broker, Stream{Bytes: 1, Partitions: 1, For: time.Millisecond}, false)
	_, aloneErr := OneAtATime(t.Context(), broker, 1, time.Millisecond)
	_, rateErr := AtRate(t.Context(), broker, 1000, 50*time.Millisecond)
	for i, err := range []error{produceErr, aloneErr, rateErr} {
		if err == nil || !strings.Contains(err.Error(), "acknowledged, but it has") {
			t.Errorf("measure %d: error %v, want one that tells of the loss", i, err)
		}
	}
}

var errRefused = errors.New("refused")

type refusingServer struct{ losingServer }

func (s *refusingServer) Line(context.Context, int) (Line, error) { return &refusingLine{}, nil }

type refusingLine struct{ losingLine }

func (*refusingLine) Send(_ context.Context, _ int, _ []byte, answered func(error)) error {
	answered(errRefused)
	return nil
}

// So is a broker that refuses records.
func TestRefusedRecordsAreAnError(t *testing.T) {
	broker := Broker{Name: "refusing", Start: func(context.Context) (Server, error) { return &refusingServer{}, nil }}
	_, produceErr := Produce(t.Context(), broker, Stream{Bytes: 1, Partitions: 1, For: time.Second}, false)
	_, aloneErr := OneAtATime(t.Context(), broker, 1, time.Second)
	_, rateErr := AtRate(t.Context(), broker, 1000, time.Millisecond)
	for i, err := range []error{produceErr, aloneErr, rateErr} {
		if !errors.Is(err, errRefused) {
			t.Errorf("measure %d: error %v, want %v", i, err, errRefused)
		}
	}
}

// slowLine takes more time for a record than there is.
type slowLine struct{ losingLine }

func (l *slowLine) Flush(ctx context.Context) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type slowServer struct{ losingServer }

func (s *slowServer) Line(context.Context, int) (Line, error) {
	return &slowLine{losingLine{&s.losingServer}}, nil
}

// A rate that a broker cannot keep up with is an error: its latency has no meaning.
func TestARateThatIsTooHigh(t *testing.T) {
	broker := Broker{Name: "slow", Start: func(context.Context) (Server, error) { return &slowServer{}, nil }}
	if l, err := AtRate(t.Context(), broker, 1000, 100*time.Millisecond); !errors.Is(err, ErrBehind) {
		t.Errorf("measured %+v, %v: want an error", l, err)
	}
}

// A record's value is the same in every run, and nothing in a batch compresses.
func TestValues(t *testing.T) {
	const records = 100_000
	first, again := Values(PayloadBytes), Values(PayloadBytes)
	var batch []byte
	for n := range records {
		value := first(n)
		if len(value) != PayloadBytes || !bytes.Equal(value, again(n)) {
			t.Fatalf("value %d has %d bytes, or is another one the second time", n, len(value))
		}
		batch = append(batch, value...)
	}
	if packed := len(s2.EncodeSnappy(nil, batch)); packed < len(batch) {
		t.Errorf("%d bytes are %d compressed: want no less", len(batch), packed)
	}
}

// A peer that is unavailable is an error with the reason.
func TestACommandThatCannotBeBuilt(t *testing.T) {
	_, err := environment.command(t.Context(), "no-such-broker", sluiceModule+"/no-such-broker", "")
	if err == nil || !strings.Contains(err.Error(), "no-such-broker is not in PATH, and cannot be built") {
		t.Errorf("error %v, want one that says what cannot be built", err)
	}
}

// The JetStream peer has the version that sluice embeds.
func TestJetStreamVersion(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	if want := jetStreamModule + " " + jetStreamVersion + "\n"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("go.mod at the root does not name %q: %v", want, err)
	}
}

func TestLatencyOf(t *testing.T) {
	var times []time.Duration
	for i := 1000; i > 0; i-- {
		times = append(times, time.Duration(i)*time.Millisecond)
	}
	l, err := latencyOf(times, 2*time.Second)
	if want := (Latency{Records: 1000, Median: 501 * time.Millisecond, P99: 991 * time.Millisecond, Rate: 500}); err != nil || l != want {
		t.Errorf("latency %+v, %v; want %+v", l, err, want)
	}
	if _, err := latencyOf(nil, time.Second); err == nil {
		t.Error("a latency of no records")
	}
}
