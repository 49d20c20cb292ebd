// Package clocks is tests only: of the fleet while a clock is off by hours, the database's or that of a worker process,
// which may be River's leader. The processes are real, the test binary again, and deliver real mail. Linux only, since a
// process is given another clock in ways that belong to the system.
package clocks
