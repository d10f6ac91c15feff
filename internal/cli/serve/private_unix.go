//go:build unix

package serve

import "golang.org/x/sys/unix"

func maskOthers() { unix.Umask(0o077) }
