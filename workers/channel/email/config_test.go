package email

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/workers/channel"
)

func TestConfig_Defaults(t *testing.T) {
	t.Parallel()
	c := Config{Host: "mx.example", From: "weir@sender.example"}.withDefaults()
	require.NoError(t, c.validate())
	assert.Equal(t, 587, c.Port)
	assert.Equal(t, TLSStartTLS, c.TLS)
	assert.Equal(t, 10*time.Second, c.DialTimeout)
	assert.Equal(t, time.Minute, c.SendTimeout)
	assert.Equal(t, 10*time.Second, c.WaitTimeout)
	assert.Equal(t, 10, c.MaxConns)
	assert.Equal(t, 2, c.MaxIdle)
	assert.Equal(t, 30*time.Second, c.IdleTimeout)
	assert.NotEmpty(t, c.HELO)
	assert.NotNil(t, c.Logger)

	assert.Equal(t, 465, Config{TLS: TLSImplicit}.withDefaults().Port)
	assert.Equal(t, 25, Config{TLS: TLSNone}.withDefaults().Port)
	assert.Equal(t, 1, Config{MaxConns: 1}.withDefaults().MaxIdle)
	assert.Equal(t, time.Second, Config{SendTimeout: time.Second}.withDefaults().DialTimeout)
}

func TestConfig_TLS(t *testing.T) {
	t.Parallel()
	d := newDialer(Config{Host: "mx.example"})
	assert.Equal(t, "mx.example", d.tls.ServerName)
	assert.EqualValues(t, tls.VersionTLS12, d.tls.MinVersion)

	given := &tls.Config{ServerName: "other.example", MinVersion: tls.VersionTLS13}
	d = newDialer(Config{Host: "mx.example", TLSConfig: given})
	assert.Equal(t, "other.example", d.tls.ServerName)
	assert.EqualValues(t, tls.VersionTLS13, d.tls.MinVersion)
	assert.NotSame(t, given, d.tls)

	d = newDialer(Config{Host: "mx.example", TLSConfig: &tls.Config{MinVersion: tls.VersionTLS10}})
	assert.EqualValues(t, tls.VersionTLS12, d.tls.MinVersion)
}

// The worst Send of every valid configuration is shorter than a delivery's step.
func TestConfig_SendEndsBeforeTheStep(t *testing.T) { // EM-02
	t.Parallel()
	base := Config{Host: "mx.example", From: "weir@sender.example"}
	for _, tc := range []struct {
		send, wait time.Duration
		ok         bool
	}{
		{StepTime, 0, false},
		{StepTime - 1, 0, false}, // leaves nothing to wait
		{StepTime - time.Second, 0, true},
		{StepTime - time.Second, time.Second, false},
		{StepTime - time.Second, time.Second - 1, true},
		{time.Minute, 3 * time.Minute, false},
		{time.Minute, 3*time.Minute - 1, true},
		{-1, 0, false},
		{time.Minute, -1, false},
		{10 * StepTime, time.Second, false},
	} {
		c := base
		c.SendTimeout, c.WaitTimeout = tc.send, tc.wait
		c = c.withDefaults()
		err := c.validate()
		require.Equal(t, tc.ok, err == nil, "%v %v: %v", tc.send, tc.wait, err)
		if err == nil {
			require.Less(t, c.SendTimeout+c.WaitTimeout, StepTime)
		}
	}
}

func TestNew_ReportsAllFaultsAndNoSecret(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Host: "mx.example:25", Port: 70000, From: "weir at sender.example", Password: "s3cret\n", TLS: TLSPolicy(9),
		HELO: "my host", DialTimeout: time.Hour, SendTimeout: 4 * time.Minute, MaxConns: 5000, MaxIdle: 6000,
		IdleTimeout: time.Hour,
	})
	require.Error(t, err)
	for _, fault := range []string{
		`Host "mx.example:25": must be a host name`, "Port 70000: must be from 1 to 65535", `From "weir at sender.example": must be`,
		"Username and Password (one of them is empty): must be both set or both empty",
		"Username and Password (not shown): must be free of", "TLS TLSPolicy(9): must be", `HELO "my host": must be`,
		"DialTimeout 1h0m0s: must be above 0 and at most SendTimeout", "SendTimeout 4m0s: must be above 0 and below 4m0s",
		"MaxConns 5000: must be from 1 to 1000", "MaxIdle 6000: must be", "IdleTimeout 1h0m0s: must be",
	} {
		assert.Contains(t, err.Error(), fault)
	}
	assert.NotContains(t, err.Error(), "s3cret")
}

func TestConfig_Hosts(t *testing.T) {
	t.Parallel()
	for host, ok := range map[string]bool{
		"mx.example": true, "127.0.0.1": true, "::1": true, "": false, "mx.example:25": false, "[::1]": false,
		"mx example": false, "mx\r\n.example": false, "smtp://mx": false, "me@mx": false, strings.Repeat("a", 256): false,
	} {
		err := Config{Host: host, From: "weir@sender.example"}.withDefaults().validate()
		assert.Equal(t, ok, err == nil, "%q: %v", host, err)
	}
}

func TestConfig_Senders(t *testing.T) {
	t.Parallel()
	for from, ok := range map[string]bool{
		"weir@sender.example": true, "Weir Ops <weir@sender.example>": true, `"a b"@sender.example`: true,
		"": false, "weir": false, "a@b.example, c@d.example": false, "wéir@sender.example": false,
		"Weir\r\nBcc: x <weir@sender.example>": false, strings.Repeat("a", 250) + "@sender.example": false,
	} {
		err := Config{Host: "mx.example", From: from}.withDefaults().validate()
		assert.Equal(t, ok, err == nil, "%q: %v", from, err)
	}
}

func TestConfig_TLSConfigWithoutTLS(t *testing.T) {
	t.Parallel()
	c := Config{Host: "mx.example", From: "weir@sender.example", TLS: TLSNone, TLSConfig: &tls.Config{}}
	require.ErrorContains(t, c.withDefaults().validate(), "TLSConfig (set): must be nil with TLSNone")
}

func TestChannel_Effect(t *testing.T) {
	t.Parallel()
	c, err := New(Config{Host: "mx.example", From: "weir@sender.example"})
	require.NoError(t, err)
	require.Equal(t, channel.AtLeastOnce, c.Effect())
}
