package natsstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Bounds of the engine.
const (
	// maxMessage is the largest message, with its headers.
	maxMessage = 8 << 20
	// MaxEntryBytes is the most data of one entry.
	MaxEntryBytes = maxMessage - 4<<10
	// maxPending is what the engine may hold for a connection of ours that does
	// not read: above it the connection is cut, and made anew.
	maxPending = 256 << 20
	// startTimeout bounds the reading of the metadata at the start.
	startTimeout = 10 * time.Minute
)

// engine is the server in this process.
type engine struct {
	*server.Server
	// login and systemLogin are how connections of ours prove themselves: empty
	// where nobody else can connect.
	login, systemLogin []nats.Option
}

// startEngine starts the server. Without a cluster it is in this process only,
// without a listener; handlers of signals it never has.
func startEngine(dir string, options Options) (*engine, error) {
	settings := &server.Options{
		ServerName:             "sluice",
		DontListen:             true,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		JetStream:              true,
		StoreDir:               dir,
		// No stream lives in memory. The store's size is bounded by MaxBytes and by
		// our own look at the disk; the engine's default would be three quarters
		// of what is free when it starts.
		JetStreamMaxMemory: 1 << 20,
		JetStreamMaxStore:  options.MaxBytes,
		SyncAlways:         options.SyncInterval == 0,
		SyncInterval:       options.SyncInterval,
		MaxPayload:         maxMessage,
		MaxPending:         maxPending,
	}
	e := &engine{}
	if options.Cluster != nil {
		if err := e.join(settings, *options.Cluster); err != nil {
			return nil, err
		}
	}
	var err error
	if e.Server, err = server.NewServer(settings); err != nil {
		return nil, err
	}
	log := &engineLog{log: options.Logger}
	e.SetLoggerV2(log, false, false, false)
	e.Start()
	// Start returns when the streams are recovered, or could not be.
	switch fatal := log.fatal.Load(); {
	case fatal != nil:
		err = errors.New(*fatal)
	case !e.ReadyForConnections(options.Timeout):
		err = fmt.Errorf("the engine is not ready after %v", options.Timeout)
		if fatal := log.fatal.Load(); fatal != nil {
			err = errors.New(*fatal)
		}
	default:
		return e, nil
	}
	stopEngine(e)
	return nil, err
}

func stopEngine(e *engine) {
	e.Shutdown()
	e.WaitForShutdown()
}

// connect makes a connection within the process. A lost one is made anew; what
// is sent meanwhile fails at once.
func connect(e *engine, log *slog.Logger) (*nats.Conn, error) { return connectAs(e, e.login, log) }

func connectAs(e *engine, login []nats.Option, log *slog.Logger) (*nats.Conn, error) {
	return nats.Connect("", append([]nats.Option{
		nats.InProcessServer(e.Server), nats.Name("sluice"),
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("topic store: lost its connection to the engine", "error", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Error("topic store: connection to the engine", "error", err)
		}),
	}, login...)...)
}

// subscribe calls handle with each message to a subject, one at a time. Nothing
// is dropped: what may arrive is bounded by what was asked for.
func subscribe(conn *nats.Conn, subject string, handle nats.MsgHandler) error {
	subscription, err := conn.Subscribe(subject, handle)
	if err != nil {
		return err
	}
	return subscription.SetPendingLimits(-1, -1)
}

const unlimited = math.MaxInt64 / 2

// engineLog hands the engine's messages to slog. What it says of its daily work
// is for debugging.
type engineLog struct {
	log *slog.Logger
	// fatal is the first error with which the engine cannot go on: it only says
	// so.
	fatal atomic.Pointer[string]
}

func (l *engineLog) Noticef(format string, v ...any) { l.log.Debug(engineText(format, v)) }

// Errorf logs an error; that a node cannot be reached, several times a second and for
// each way to it, only for debugging: the store says once which nodes are alive.
func (l *engineLog) Errorf(format string, v ...any) {
	level := slog.LevelError
	if strings.HasPrefix(format, "Error trying to connect to route") {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, engineText(format, v))
}

// everyday are the beginnings of warnings that nobody can do anything about: the
// passwords are made anew at each start, and known to this process alone.
var everyday = []string{"Plaintext passwords detected", "Metalayer blocking snapshot", "Waiting for routing", "JetStream has not established"}

// Warnf logs a warning.
func (l *engineLog) Warnf(format string, v ...any) {
	level := slog.LevelWarn
	for _, begin := range everyday {
		if strings.HasPrefix(format, begin) {
			level = slog.LevelDebug
		}
	}
	l.log.Log(context.Background(), level, engineText(format, v))
}

// Fatalf logs an error and keeps it.
func (l *engineLog) Fatalf(format string, v ...any) {
	text := engineText(format, v)
	l.log.Error(text)
	l.fatal.CompareAndSwap(nil, &text)
}

// Debugf and Tracef are off.
func (l *engineLog) Debugf(string, ...any) {}
func (l *engineLog) Tracef(string, ...any) {}

func engineText(format string, v []any) string {
	return "jetstream: " + fmt.Sprintf(format, v...)
}
