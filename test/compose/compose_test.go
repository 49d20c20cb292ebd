// Package compose checks compose.yaml with the library that docker compose itself loads it with. It is a module of its
// own, so that nobody who imports Weir downloads it.
package compose

import (
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

func load(t *testing.T, profiles ...string) *types.Project {
	t.Helper()
	opts, err := cli.NewProjectOptions([]string{"../../compose.yaml"},
		cli.WithEnv([]string{"WEIR_DB_PASSWORD=pw"}), cli.WithProfiles(profiles), cli.WithName("weir"))
	require.NoError(t, err)
	project, err := opts.LoadProject(t.Context())
	require.NoError(t, err)
	return project
}

func service(t *testing.T, p *types.Project, name string) types.ServiceConfig {
	t.Helper()
	s, err := p.GetService(name)
	require.NoError(t, err)
	return s
}

func TestCompose_RefusesToStartWithoutAPassword(t *testing.T) {
	opts, err := cli.NewProjectOptions([]string{"../../compose.yaml"}, cli.WithEnv([]string{"HOME=/"}), cli.WithName("weir"))
	require.NoError(t, err)
	_, err = opts.LoadProject(t.Context())
	require.ErrorContains(t, err, "WEIR_DB_PASSWORD")
}

func TestCompose_MailpitIsForDevelopmentOnly(t *testing.T) {
	_, err := load(t).GetService("mailpit")
	require.Error(t, err)
	service(t, load(t, "dev"), "mailpit")
}

func TestCompose_WorkersScaleAndStopInTime(t *testing.T) {
	w := service(t, load(t), "worker")
	require.NotNil(t, w.Deploy)
	require.NotNil(t, w.Deploy.Replicas)
	require.GreaterOrEqual(t, *w.Deploy.Replicas, 2)
	require.Empty(t, w.ContainerName, "a name would allow one container only")
	require.Empty(t, w.Ports, "a host port would allow one container only")
	grace, err := time.ParseDuration(*w.Environment["WEIR_SHUTDOWN_GRACE"])
	require.NoError(t, err)
	require.NotNil(t, w.StopGracePeriod)
	require.Greater(t, time.Duration(*w.StopGracePeriod), grace+6*time.Second)
}

func TestCompose_NothingWorksBeforeTheMigrations(t *testing.T) {
	p := load(t)
	for _, name := range []string{"worker", "ui"} {
		require.Equal(t, types.ServiceConditionCompletedSuccessfully, service(t, p, name).DependsOn["migrate"].Condition, name)
	}
	require.Equal(t, types.ServiceConditionHealthy, service(t, p, "migrate").DependsOn["postgres"].Condition)
	require.Equal(t, types.RestartPolicyNo, service(t, p, "migrate").Restart)
}

func TestCompose_PagesAreOnLoopbackAndBehindAPassword(t *testing.T) {
	ui := service(t, load(t), "ui")
	require.Len(t, ui.Ports, 1)
	require.Equal(t, "127.0.0.1", ui.Ports[0].HostIP)
	require.NotEmpty(t, *ui.Environment["RIVER_BASIC_AUTH_USER"])
	require.NotEmpty(t, *ui.Environment["RIVER_BASIC_AUTH_PASS"])
}

func TestCompose_ContainersCannotGainRightsOrWriteTheirImage(t *testing.T) {
	for name, s := range load(t).Services {
		require.Contains(t, s.SecurityOpt, "no-new-privileges:true", name)
		if s.Build != nil {
			require.True(t, s.ReadOnly, name)
			require.Contains(t, s.CapDrop, "ALL", name)
		}
	}
}

func TestCompose_TheDataSurvivesTheContainer(t *testing.T) {
	pg := service(t, load(t), "postgres")
	require.Len(t, pg.Volumes, 1)
	require.Equal(t, "/var/lib/postgresql", pg.Volumes[0].Target, "where postgres:18 keeps its data")
}
