package watch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	usage "runtime/metrics"
	"sync"
	"testing"

	"github.com/sluice-project/sluice/room/engine"
)

// benchAddress names the variable that makes the test binary a client, so that the clients' memory
// is not counted.
const benchAddress = "WATCH_BENCH_ADDRESS"

const benchStreams = 15_000

// openStreams opens streams, prints a line when all have had an event, and holds them until its
// input ends.
func openStreams(address string) {
	connections := make(chan net.Conn, benchStreams)
	var opening sync.WaitGroup
	numbers := make(chan int)
	for range 32 {
		opening.Go(func() {
			for number := range numbers {
				connections <- openStream(address, number)
			}
		})
	}
	for number := range benchStreams {
		numbers <- number
	}
	close(numbers)
	opening.Wait()
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func openStream(address string, number int) net.Conn {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_, err = fmt.Fprintf(conn, "GET /%d HTTP/1.1\r\nHost: shop.example\r\nAccept: text/event-stream\r\nUser-Agent: bench\r\n\r\n", number)
	}
	in := bufio.NewReader(conn)
	for line := ""; err == nil && len(line) < 4; {
		line, err = in.ReadString('\n')
		if len(line) < 4 || line[:4] != "data" {
			line = ""
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	return conn
}

// inUse returns the memory of the heap's objects and of goroutines' stacks.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	samples := []usage.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	usage.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}

// BenchmarkStreamMemory reports the memory of each stream while all are open and have been polled
// several times.
func BenchmarkStreamMemory(b *testing.B) {
	for b.Loop() {
		e := newFake()
		h := New(e)
		if err := h.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var number int64
			_, _ = fmt.Sscanf(r.URL.Path, "/%d", &number)
			if err := h.Serve(w, r, Stream{Room: roomOf(number), Ticket: engine.Ticket{Number: number}, Format: format}); err != nil {
				b.Error(err)
			}
		})}
		go func() { _ = server.Serve(listener) }()
		for number := range int64(benchStreams) {
			e.asked[number] = 0 // The fake's own memory was allocated before.
		}
		before := inUse()
		clients := exec.Command(os.Args[0])
		clients.Env = append(os.Environ(), benchAddress+"="+listener.Addr().String())
		in, _ := clients.StdinPipe()
		out, _ := clients.StdoutPipe()
		if err := clients.Start(); err != nil {
			b.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
			b.Fatal(line, err)
		}
		for e.count(benchStreams-1) < 4 {
			runtime.Gosched()
		}
		after := inUse()
		b.ReportMetric(float64(after-before)/benchStreams, "B/stream")
		b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
		if h.Streams() != benchStreams {
			b.Errorf("%d streams are open", h.Streams())
		}
		in.Close()
		_ = clients.Wait()
		_ = server.Close()
		if err := h.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	}
}
