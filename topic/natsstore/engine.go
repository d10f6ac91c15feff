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
	// maxPending bounds what the engine buffers for a connection of ours that does not
	// read. Above it the engine cuts the connection, which is then made again.
	maxPending = 256 << 20
	// startTimeout is the timeout of reading the metadata at the start.
	startTimeout = 10 * time.Minute
)

// engine is the server in this process.
type engine struct {
	*server.Server
	// login and systemLogin are the credentials of our connections, empty for an engine
	// without a listener.
	login, systemLogin []nats.Option
}

// startEngine starts the server, without signal handlers. Without a cluster it has no
// listener.
func startEngine(dir string, options Options) (*engine, error) {
	settings := &server.Options{
		ServerName:             "sluice",
		DontListen:             true,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
		JetStream:              true,
		StoreDir:               dir,
		// No stream is in memory. MaxBytes and the store's check of the disk bound the
		// size; the engine's default is three quarters of the space that is free at start.
		JetStreamMaxMemory: 1 << 20,
		JetStreamMaxStore:  options.MaxBytes,
		SyncAlways:         options.SyncInterval == 0,
		SyncInterval:       options.SyncInterval,
		MaxPayload:         maxMessage,
		MaxPending:         maxPending,
	}
	e := &engine{}
	if options.Cluster != nil {
		if err := e.join(settings, *options.Cluster, options.Logger); err != nil {
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

// connect makes a connection within the process. It reconnects when it is lost; until then
// sends fail at once.
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

// subscribe calls handle with each message to a subject, one at a time. It drops none: our
// own requests bound the messages that may arrive.
func subscribe(conn *nats.Conn, subject string, handle nats.MsgHandler) error {
	subscription, err := conn.Subscribe(subject, handle)
	if err != nil {
		return err
	}
	return subscription.SetPendingLimits(-1, -1)
}

const unlimited = math.MaxInt64 / 2

// engineLog writes the engine's messages to slog; its notices at debug level.
type engineLog struct {
	log *slog.Logger
	// fatal is the first error after which the engine cannot continue. It only logs it.
	fatal atomic.Pointer[string]
}

func (l *engineLog) Noticef(format string, v ...any) { l.log.Debug(engineText(format, v)) }

// Errorf logs an error. Unreachable nodes, which the engine logs several times a second for
// each address, are at debug level: the store logs when the set of alive nodes changes.
func (l *engineLog) Errorf(format string, v ...any) {
	level := slog.LevelError
	if strings.HasPrefix(format, "Error trying to connect to route") {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, engineText(format, v))
}

// benignWarnings are the prefixes of warnings that need no action. The passwords, for example,
// are random at each start, and only this process has them.
var benignWarnings = []string{"Plaintext passwords detected", "Metalayer blocking snapshot", "Waiting for routing", "JetStream has not established"}

// Warnf logs a warning.
func (l *engineLog) Warnf(format string, v ...any) {
	level := slog.LevelWarn
	for _, begin := range benignWarnings {
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
