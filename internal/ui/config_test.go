package ui

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// resolve reads settings as cmd/ui does, from an environment of which only these are set.
func resolve(t *testing.T, env map[string]string) (*Resolved, error) {
	t.Helper()
	var s Settings
	parser, err := kong.New(&s)
	require.NoError(t, err)
	for _, flag := range parser.Model.Flags {
		for _, name := range flag.Envs {
			require.NoError(t, os.Unsetenv(name))
			if value, ok := env[name]; ok {
				t.Setenv(name, value)
			}
		}
	}
	_, err = parser.Parse(nil)
	require.NoError(t, err)
	return s.Resolve()
}

const someDatabase = "postgres://weir@127.0.0.1:1/weir"

func TestSettings_DefaultsAreALoopbackAddressAndJSON(t *testing.T) {
	r, err := resolve(t, map[string]string{"DATABASE_URL": someDatabase})
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", r.Host)
	require.Equal(t, "8080", r.Port)
	require.True(t, r.LogJSON)
	require.Nil(t, r.Auth)
	require.Equal(t, "weir-ui", r.Pool.ConnConfig.RuntimeParams["application_name"])
}

func TestSettings_AllFaultsAtOnceAndNoSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(file, []byte("ada:"+hashOf(t, "ada")+"\nbob:hunter2\n"), 0o600))
	_, err := resolve(t, map[string]string{
		"DATABASE_URL": "postgres://u:hunter2@h:bad/x", "PORT": "65536", "RIVER_SCHEMA": "a;b", "RIVER_LOG_LEVEL": "loud", "RIVER_LOG_FORMAT": "xml",
		"RIVER_BASIC_AUTH_PASS": "hunter2", "WEIR_HTPASSWD_FILE": file, "WEIR_PROXY_CIDRS": "10.0.0.1, 0.0.0.0/0",
	})
	require.ErrorIs(t, err, ErrInvalid)
	for _, want := range []string{
		"DATABASE_URL (not shown", `PORT = "65536": must be a whole number from 0 to 65535`, `RIVER_SCHEMA = "a;b": must be`, `RIVER_LOG_LEVEL = "loud": must be one of`,
		`RIVER_LOG_FORMAT = "xml": must be json or text`, `RIVER_BASIC_AUTH_USER = "": must be`, "must be one of the three", `line 2: user "bob"`,
		`"10.0.0.1" must be a range`, `"0.0.0.0/0" must not be every address`, `WEIR_PROXY_USER_HEADER = "": must be`,
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "hunter2")
}

func TestSettings_APublicAddressNeedsAuthentication(t *testing.T) {
	for _, host := range []string{"0.0.0.0", "", "::", "weir.example"} {
		env := map[string]string{"DATABASE_URL": someDatabase, "RIVER_HOST": host}
		_, err := resolve(t, env)
		require.ErrorContains(t, err, "RIVER_HOST", host)

		env["RIVER_BASIC_AUTH_USER"], env["RIVER_BASIC_AUTH_PASS"] = "ada", "s3cret"
		r, err := resolve(t, env)
		require.NoError(t, err, host)
		require.Equal(t, BasicAuth{User: "ada", Password: "s3cret"}, r.Auth)
	}
}

func TestSettings_AViewerThatIsNoUserIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(file, []byte("vera:"+hashOf(t, "vera")+"\n"), 0o600))
	env := map[string]string{"DATABASE_URL": someDatabase, "WEIR_HTPASSWD_FILE": file, "WEIR_VIEWERS": "vera, viktor"}
	_, err := resolve(t, env)
	require.ErrorContains(t, err, `"viktor" must be a user of WEIR_HTPASSWD_FILE`)

	env["WEIR_VIEWERS"] = " vera "
	r, err := resolve(t, env)
	require.NoError(t, err)
	require.Equal(t, []string{"vera"}, r.Viewers)
}

func TestSettings_AMissingHtpasswdFileIsNamed(t *testing.T) {
	_, err := resolve(t, map[string]string{"DATABASE_URL": someDatabase, "WEIR_HTPASSWD_FILE": "/nowhere/users"})
	require.ErrorContains(t, err, `WEIR_HTPASSWD_FILE = "/nowhere/users": must be a file that can be read`)
	require.Equal(t, 1, strings.Count(err.Error(), "WEIR_HTPASSWD_FILE"), "one fault, one line")
}

func TestSettings_EveryOneHasAVariableAndAHelpText(t *testing.T) {
	parser, err := kong.New(&Settings{})
	require.NoError(t, err)
	for _, flag := range parser.Model.Flags {
		if flag.Name == "help" {
			continue
		}
		require.NotEmpty(t, flag.Envs, flag.Name)
		require.NotEmpty(t, flag.Help, flag.Name)
	}
}
