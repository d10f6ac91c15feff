package config

import (
	"os"
	"strings"
)

// Exposed returns the paths of files with secrets that other users of the machine may
// read. Windows has no such permissions.
func (c *Config) Exposed() (paths []string) {
	files := []string{c.Access.AdminTokenFile, c.Cluster.SecretFile, c.Cluster.KeyFile, c.Gate.TLSKey, c.TLS.KeyFile}
	for _, s := range c.schema() {
		if source, of := strings.CutPrefix(c.Source(s.Key), "file "); of && s.Secret {
			files = append(files, source[:strings.LastIndexByte(source, ':')])
			break // there is one file of settings
		}
	}
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o044 != 0 && os.PathSeparator == '/' {
			paths = append(paths, path)
		}
	}
	return paths
}
