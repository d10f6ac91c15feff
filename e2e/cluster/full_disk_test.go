//go:build cluster && long

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// The disk of one node becomes full, under load. The others continue; when space is free again and
// the node has restarted, it catches up.
func TestFullDisk(t *testing.T) {
	c := newCluster(t, layout{nodes: 3, disk: 256 << 20})
	l := newLoad(c, 6, 3)
	l.flows(500)
	full := c.node(3)
	ballast := filepath.Join(full.data, "ballast")
	l.suffer(fault{"full disk", 15 * time.Second,
		func(*node) error { return fill(ballast) },
		func(n *node) error {
			l.flows(500) // all of this on the full disk: the others continue
			if !n.ends(until.Limit) {
				t.Error("a node whose engine cannot write goes on")
			}
			n.kill()
			defer n.launch()
			return os.Remove(ballast)
		}}, full.id)
	checkInterruptions(t, l.finish())
}

// fill writes a file until the disk is full.
func fill(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for piece := make([]byte, 64<<10); len(piece) > 0; {
		if _, err := file.Write(piece); errors.Is(err, syscall.ENOSPC) {
			piece = piece[:len(piece)/2]
		} else if err != nil {
			return err
		}
	}
	return nil
}
