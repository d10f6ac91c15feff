package gate

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

// BenchmarkInside is the gate's own part of a request of a visitor inside.
func BenchmarkInside(b *testing.B) {
	f := newFake()
	f.ends = time.Now().Add(time.Hour)
	f.set(1, room.Inside)
	g, err := New(f, nil, Options{Sites: []Site{{Room: "shop"}}})
	if err != nil {
		b.Fatal(err)
	}
	handler := g.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	r := httptest.NewRequest(http.MethodGet, "http://shop.test/cart?a=1", http.NoBody)
	for name, value := range map[string]string{
		"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Language": "ko-KR,ko;q=0.9,en;q=0.8", "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0",
		"Accept-Encoding": "gzip, br", "Sec-Fetch-Dest": "image", "Sec-Fetch-Mode": "no-cors", "Cookie": "theme=dark; sluice_ticket_shop=ticket-1; sluice_pass_shop=PASS-1",
	} {
		r.Header.Set(name, value)
	}
	w := discard{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(w, r)
	}
}

// discard is an answer that nobody reads.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
