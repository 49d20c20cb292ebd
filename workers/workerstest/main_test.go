package workerstest_test

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// What is tested here waits for leases, and needs a core for little of the time: as many tests at once as there are
// cores, which is the default, would leave them idle.
func TestMain(m *testing.M) {
	flag.Parse()
	if n := flag.Lookup("test.parallel"); n.Value.String() == n.DefValue {
		_ = flag.Set("test.parallel", strconv.Itoa(6))
	}
	os.Exit(m.Run())
}
