package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// postgresFolders are Debian's folders of the commands of each version.
const postgresFolders = "/usr/lib/postgresql/*/bin"

// postgresServer is a PostgreSQL that this package starts.
type postgresServer struct {
	process *process
	folder  string
	// url is the server's address: a unix socket in its folder, and nothing else.
	url string
}

// postgresSettings keep every commit durable, and give the server memory and space for its log, so
// that no checkpoint falls into a measure.
var postgresSettings = []string{
	"fsync=on", "synchronous_commit=on", "full_page_writes=on",
	"shared_buffers=512MB", "max_wal_size=8GB", "checkpoint_timeout=30min",
	"max_connections=100", "listen_addresses=",
}

// startPostgres starts a PostgreSQL; further settings override the common ones.
func startPostgres(ctx context.Context, parent string, further ...string) (_ *postgresServer, err error) {
	initdb, err := find("initdb", postgresFolders, "postgresql")
	if err != nil {
		return nil, err
	}
	who, err := serverAccount("postgres")
	if err != nil {
		return nil, err
	}
	p := &postgresServer{}
	if p.folder, err = folderFor(parent, "postgres-", who); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(p.folder))
		}
	}()
	data := filepath.Join(p.folder, "data")
	making := commandAs(ctx, who, p.folder, initdb, "--pgdata", data, "--username", "bench",
		"--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-instructions")
	if output, err := making.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, output)
	}
	p.url = fmt.Sprintf("host=%s user=bench dbname=postgres", p.folder)
	args := []string{"-D", data, "-k", p.folder}
	for _, setting := range slices.Concat(postgresSettings, further) {
		args = append(args, "-c", setting)
	}
	server := filepath.Join(filepath.Dir(initdb), "postgres")
	p.process, err = start(ctx, who, p.folder, p.ready, server, args...)
	return p, err
}

func (p *postgresServer) ready(ctx context.Context) error {
	connection, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return err
	}
	return connection.Close(ctx)
}

// stop stops the server at once: its data is not needed any more.
func (p *postgresServer) stop() error {
	return errors.Join(p.process.stop(syscall.SIGQUIT), removeAll(p.folder))
}
