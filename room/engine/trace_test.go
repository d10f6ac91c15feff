package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// Visitors have spans below that of their request, if that is recorded, and the round that lets the next one in has one of its own.
func TestSpans(t *testing.T) {
	made := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(made))
	inVirtualTime(t, func(t *testing.T, r *rig) {
		r.put("shop", room.Settings{Mode: room.Teller, Capacity: 1})
		first := r.enter("shop")
		synctest.Wait()
		made.Reset() // a round may have let the first one in
		request, span := provider.Tracer("test").Start(ctx, "request")
		second, err := r.Enter(request, "shop", room.Visit{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the counts of a round before
		if err := r.Leave(ctx, "shop", first.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		inside, err := r.Ask(request, "shop", second.Ticket, nowhere)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.AskPass(request, "shop", inside.Pass, nowhere); err != nil {
			t.Fatal(err)
		}
		if err := r.Leave(ctx, "shop", second.Ticket, nowhere); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Ask(request, "shop", second.Ticket, nowhere); err == nil {
			t.Fatal("a visitor who left has a place")
		}
		span.End()
		var got []string
		for _, s := range made.GetSpans() {
			line := s.Name
			if s.Parent.SpanID() == span.SpanContext().SpanID() {
				line = "request/" + line
			}
			for _, a := range s.Attributes {
				line += " " + strings.TrimPrefix(string(a.Key), "sluice.") + "=" + a.Value.String()
			}
			got = append(got, line)
		}
		want := []string{
			"request/join shop room=shop visitor.id=2 visitor.status=waiting visitor.new=true visitor.position=1",
			"admit shop room=shop room.admitted=1 room.missed=0 room.expired=0 room.waiting=0 room.inside=1",
			"request/ask shop room=shop visitor.id=2 visitor.status=inside visitor.new=false",
			"request/pass shop room=shop visitor.id=2 visitor.status=inside visitor.new=false",
			"request/ask shop room=shop visitor.id=2 visitor.gone=left",
			"request",
		}
		if !slices.Equal(got, want) {
			t.Errorf("the spans are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}, engine.WithTracerProvider(provider))
	if err := provider.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
