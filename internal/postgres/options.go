package postgres

import (
	"fmt"
	"regexp"
)

// Options says which cluster to start, and how. Either Name or Ephemeral must be set.
type Options struct {
	// Name of the cluster: lower-case letters, digits, "-" and "_", at most 30. Each name has its own data, kept from one
	// start to the next, for each major version of PostgreSQL.
	Name string

	// Ephemeral makes a cluster of its own instead, gone after Close. Name must be empty.
	Ephemeral bool

	// Durable data survive a crash of the machine. Without it PostgreSQL does not wait for the disk, and a cluster that
	// no longer starts is made anew, empty. Defaults to false.
	Durable bool

	// Settings are added to the server's configuration. They hold for a start: a server that is already running keeps
	// those that it was started with. Defaults: no network, 300 connections, UTC.
	Settings map[string]string

	// Env is added to the environment of the server, as "NAME=value": how tests give it another clock. Like Settings it
	// holds for a start.
	Env []string
}

var clusterName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,29}$`)

func (o Options) validate() error {
	switch {
	case o.Ephemeral && o.Name != "":
		return fmt.Errorf("postgres: an ephemeral cluster has no name, but Name is %q", o.Name)
	case !o.Ephemeral && !clusterName.MatchString(o.Name):
		return fmt.Errorf("postgres: Name is %q: it must match %s", o.Name, clusterName)
	}
	return nil
}
