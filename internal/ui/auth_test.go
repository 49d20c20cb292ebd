package ui

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func request(change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, f := range change {
		f(r)
	}
	return r
}

func TestHtpasswd_LetsTheRightPasswordInAndNoOther(t *testing.T) {
	t.Parallel()
	h := users(t, "ada", "bob")
	for range 2 { // the second time from memory
		name, ok := h.identify(request(as("ada", "ada")))
		require.True(t, ok)
		require.Equal(t, "ada", name)
		for _, wrong := range [][2]string{{"ada", "bob"}, {"ada", ""}, {"eve", "ada"}, {"", ""}, {"ad", "a:ada"}} {
			_, ok := h.identify(request(as(wrong[0], wrong[1])))
			require.False(t, ok, wrong)
		}
	}
	_, ok := h.identify(request())
	require.False(t, ok)
}

func TestHtpasswd_RefusesOtherHashesByLineAndNeverShowsThem(t *testing.T) {
	t.Parallel()
	costly := "$2y$17$" + strings.Repeat("a", 53)
	file := strings.Join([]string{
		"# people", "", "ada:" + hashOf(t, "ada"), "bob:$apr1$sEcReT$hash", "eve:{SHA}sEcReThash", "plain:sEcReT", "noColon-sEcReT",
		":" + hashOf(t, "x"), "ada:" + hashOf(t, "again"), "max:" + costly, "cut:$2y$05$sEcReT",
	}, "\n")
	_, err := ParseHtpasswd(strings.NewReader(file))
	require.Error(t, err)
	for _, want := range []string{
		`line 4: user "bob"`, `line 5: user "eve"`, `line 6: user "plain"`, "line 7: must be user:hash", "line 8: must be user:hash",
		`line 9: user "ada" is there twice`, `line 10: user "max": the bcrypt cost is 17`, `line 11: user "cut"`,
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "sEcReT")
	require.NotContains(t, err.Error(), "$2y$")
	require.NotContains(t, err.Error(), "line 3")
}

func TestHtpasswd_WithoutAUserIsRefused(t *testing.T) {
	t.Parallel()
	_, err := ParseHtpasswd(strings.NewReader("# nobody\n"))
	require.ErrorContains(t, err, "no user")
}

func TestProxyAuth_BelievesTheProxyOnly(t *testing.T) {
	t.Parallel()
	a := &ProxyAuth{Header: "X-Forwarded-User", Proxies: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}}
	from := func(address string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = address } }
	for _, address := range []string{"10.1.2.3:4", "[::ffff:10.1.2.3]:4", "[fd00::1]:4", "[fd00::1%eth0]:4"} {
		name, ok := a.identify(request(from(address), header("X-Forwarded-User", "ada")))
		require.True(t, ok, address)
		require.Equal(t, "ada", name)
	}
	for _, address := range []string{"10.2.0.1:4", "127.0.0.1:4", "[::1]:4", "@", ""} {
		_, ok := a.identify(request(from(address), header("X-Forwarded-User", "ada"), header("X-Forwarded-For", "10.1.2.3")))
		require.False(t, ok, address)
	}
	for name, r := range map[string]*http.Request{
		"no header":    request(from("10.1.2.3:4")),
		"an empty one": request(from("10.1.2.3:4"), header("X-Forwarded-User", "")),
		"two":          request(from("10.1.2.3:4"), header("X-Forwarded-User", "ada"), header("X-Forwarded-User", "eve")),
	} {
		_, ok := a.identify(r)
		require.False(t, ok, name)
	}
}

func TestProxyAuth_ViewersOfTheProxyCannotWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) {
		c.Auth = &ProxyAuth{Header: "X-User", Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
		c.Viewers = []string{"vera"}
	})
	id := s.notify()
	require.Equal(t, http.StatusForbidden, s.get("/").StatusCode)
	require.Equal(t, http.StatusOK, s.get("/", header("X-User", "vera")).StatusCode)
	require.Equal(t, http.StatusForbidden, s.post(pathOf(id, "/cancel"), header("X-User", "vera")).StatusCode)
	require.Equal(t, http.StatusSeeOther, s.post(pathOf(id, "/cancel"), header("X-User", "otto")).StatusCode)
}
