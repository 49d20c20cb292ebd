package settings_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/settings"
)

func TestUnknown_NamesMisspeltVariablesWithoutTheirValues(t *testing.T) {
	environ := []string{
		"WEIR_SMTP_PASWORD=secret", "WEIR_RETENTON=24h", "WEIR_RETENTION=24h", "WEIR_NEON_API_KEY=k", "PATH=/bin", "DATABASE_URL=x", "WEIR_=1",
		"WEIR_RETENTON=48h", // an environment may have a name twice
	}
	require.Equal(t, []string{"WEIR_", "WEIR_RETENTON", "WEIR_SMTP_PASWORD"}, settings.Unknown(environ, settings.Worker{}))
	require.Contains(t, settings.Unknown([]string{"WEIR_RETENTION=1h"}, struct{}{}), "WEIR_RETENTION")
}

func TestUnknown_IgnoresWhatNobodyMeantAsASetting(t *testing.T) {
	environ := []string{
		"WEIR_DB_PASSWORD=p", "WEIR_TEST_AS_WORKER=1",
		// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
		"WEIR_UI_SERVICE_HOST=10.0.0.1", "WEIR_UI_SERVICE_PORT=80", "WEIR_UI_SERVICE_PORT_HTTP=80", "WEIR_UI_PORT=tcp://10.0.0.1:80",
		"WEIR_UI_PORT_80_TCP=tcp://10.0.0.1:80", "WEIR_UI_PORT_80_TCP_PROTO=tcp", "WEIR_UI_PORT_80_TCP_ADDR=10.0.0.1",
	}
	require.Empty(t, settings.Unknown(environ, settings.Worker{}))
}
