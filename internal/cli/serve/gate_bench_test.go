package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/bundle"
	"github.com/sluice-project/sluice/internal/fsync"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/room"
)

// BenchmarkGate compares requests of a visitor inside through the gate with those through a
// bare httputil.ReverseProxy to the same upstream, in turns. "x" is the median of the ratios of
// their requests a second.
func BenchmarkGate(b *testing.B) { benchmarkGate(b, string(config.Embedded)) }

func benchmarkGate(b *testing.B, state string) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1024))
	}))
	b.Cleanup(upstream.Close)
	target, err := url.Parse(upstream.URL)
	if err != nil {
		b.Fatal(err)
	}
	bare := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConns: 512, MaxIdleConnsPerHost: 512, DisableCompression: true},
	})
	b.Cleanup(bare.Close)
	front, cookies := openBenchmarkGate(b, state, upstream.URL)
	header := "Host: shop.test\r\nAccept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Language: ko-KR,ko;q=0.9,en;q=0.8\r\n" +
		"Accept-Encoding: gzip, br\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nCookie: theme=dark; " + cookies
	gateLoad, bareLoad := newLoad(b, front, header), newLoad(b, strings.TrimPrefix(bare.URL, "http://"), header)
	const round = 250 * time.Millisecond
	gateLoad.run(round)
	bareLoad.run(round)
	var ratios, rates []float64
	for b.Loop() {
		through, beside := gateLoad.run(round), bareLoad.run(round)
		ratios, rates = append(ratios, through/beside), append(rates, through)
	}
	slices.Sort(ratios)
	slices.Sort(rates)
	b.ReportMetric(ratios[len(ratios)/2], "x")
	b.ReportMetric(rates[len(rates)/2], "requests/s")
	b.ReportMetric(0, "ns/op")
}

// openBenchmarkGate returns the address of a gate of "sluice gate", and the cookies of a visitor
// inside.
func openBenchmarkGate(b *testing.B, state, upstream string) (address, cookies string) {
	b.Helper()
	flags := pflag.NewFlagSet("gate", pflag.PanicOnError)
	config.AddRoomFlags(flags, gateRoomSettings...)
	config.GateFlags(flags)
	err := flags.Parse([]string{"--data", b.TempDir(), "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--state", state, "--room", "shop", "--upstream", upstream})
	if err != nil {
		b.Fatal(err)
	}
	settings, err := config.LoadGate(flags, nil)
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	disk := fsync.NewWatch(log)
	connections, server := openServer(settings, &accounts{}, nil, disk, &bundle.Tail{}, log)
	of, err := openRooms(b.Context(), settings, server, disk, nil, nil, nil, log)
	if err != nil {
		b.Fatal(err)
	}
	gate, err := openGate(settings, of, server, connections, nil, log)
	if err != nil {
		b.Fatal(err)
	}
	services := slices.Concat(of.services, gate.services)
	for _, service := range services {
		if err := service.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() {
		for _, service := range slices.Backward(services) {
			_ = service.Stop(context.Background())
		}
		_ = of.close()
	})
	if _, _, err := of.engine.PutRoom(b.Context(), "shop", room.Settings{Mode: room.Teller, Capacity: 10}); err != nil {
		b.Fatal(err)
	}
	answer, err := of.engine.Enter(b.Context(), "shop", room.Visit{})
	if err != nil {
		b.Fatal(err)
	}
	front := gate.services[0].(interface {
		lifecycle.Service
		Addr() net.Addr
	})
	return front.Addr().String(), "sluice_ticket_shop=" + answer.Ticket + "; sluice_pass_shop=" + answer.Pass
}

// load sends requests over 16 connections, each after the answer to the one before.
type load struct {
	b     *testing.B
	conns []net.Conn
	text  []byte
}

func newLoad(b *testing.B, address, header string) *load {
	b.Helper()
	l := &load{b: b, text: []byte("GET /cart HTTP/1.1\r\n" + header + "\r\n\r\n")}
	for range 16 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		l.conns = append(l.conns, conn)
	}
	return l
}

// run returns the requests a second over some time.
func (l *load) run(length time.Duration) float64 {
	var all sync.WaitGroup
	counts := make([]int, len(l.conns))
	began := time.Now()
	for i, conn := range l.conns {
		all.Go(func() {
			reader := bufio.NewReader(conn)
			for time.Since(began) < length {
				if err := l.ask(conn, reader); err != nil {
					l.b.Error(err)
					return
				}
				counts[i]++
			}
		})
	}
	all.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / time.Since(began).Seconds()
}

func (l *load) ask(conn net.Conn, reader *bufio.Reader) error {
	if _, err := conn.Write(l.text); err != nil {
		return err
	}
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); err != nil || n != 1024 || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%d with %d bytes, %w", response.StatusCode, n, err)
	}
	return nil
}
