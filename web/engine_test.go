package web

import (
	"testing"

	"github.com/dop251/goja"
	"github.com/evanw/esbuild/pkg/api"
	"github.com/stretchr/testify/require"
)

// engine runs TypeScript in this process.
type engine struct {
	t   *testing.T
	vm  *goja.Runtime
	mod *goja.Object
}

func newEngine(t *testing.T, entry string) *engine {
	t.Helper()
	code, err := bundle(api.BuildOptions{EntryPoints: []string{entry}, Format: api.FormatIIFE, GlobalName: "mod", Sourcemap: api.SourceMapInline})
	require.NoError(t, err)
	vm := goja.New()
	require.NoError(t, vm.Set("print", func(s string) { t.Log(s) }))
	_, err = vm.RunScript(entry, string(code))
	require.NoError(t, err)
	return &engine{t, vm, vm.Get("mod").ToObject(vm)}
}

// call calls a function that the entry exports. A promise that it returns must be settled by then: nothing in a test
// waits for anything but other promises.
func (e *engine) call(f goja.Value, args ...any) goja.Value {
	e.t.Helper()
	callable, ok := goja.AssertFunction(f)
	require.True(e.t, ok)
	values := make([]goja.Value, len(args))
	for i, a := range args {
		values[i] = e.vm.ToValue(a)
	}
	v, err := callable(goja.Undefined(), values...)
	require.NoError(e.t, err)
	if p, ok := v.Export().(*goja.Promise); ok {
		require.Equal(e.t, goja.PromiseStateFulfilled, p.State(), "%v", p.Result())
		return p.Result()
	}
	return v
}

func (e *engine) export(name string) goja.Value {
	e.t.Helper()
	v := e.mod.Get(name)
	require.NotNil(e.t, v, name)
	return v
}

// runAll runs what test() collected, each as a subtest.
func (e *engine) runAll(t *testing.T) {
	t.Helper()
	list := e.call(e.export("all")).ToObject(e.vm)
	n := int(list.Get("length").ToInteger())
	require.Greater(t, n, 10)
	for i := range n {
		one := list.Get(e.vm.ToValue(i).String()).ToObject(e.vm)
		t.Run(one.Get("0").String(), func(t *testing.T) {
			(&engine{t, e.vm, e.mod}).call(one.Get("1"))
		})
	}
}
