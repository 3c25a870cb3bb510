package engine

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// DiskUse is what a folder's files occupy on the disk.
func DiskUse(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return skipGone(err)
		}
		info, err := d.Info()
		if err != nil {
			return skipGone(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			n += st.Blocks * 512
		}
		return nil
	})
	return n, err
}

// skipGone passes over files that a store deletes while they are counted.
func skipGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// memory returns this process's resident memory: all of it, and without the
// pages of files.
func memory() (rss, anon int64, err error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			rss = kib << 10
		}
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			anon = kib << 10
		}
	}
	return rss, anon, nil
}

// Machine describes where this runs.
func Machine(dir string) string {
	model, memory, kernel := "unknown processor", "", ""
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	var kib int64
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		if n, _ := fmt.Sscanf(string(b), "MemTotal: %d kB", &kib); n == 1 {
			memory = fmt.Sprintf(", %.0f GiB", float64(kib)/(1<<20))
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = ", Linux " + strings.TrimSpace(string(b))
	}
	return model + memory + kernel + ", " + fileSystem(dir)
}

// fileSystem names the file system of dir.
func fileSystem(dir string) string {
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return "unknown file system"
	}
	names := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlayfs"}
	if n := names[int64(st.Type)]; n != "" {
		return n
	}
	return fmt.Sprintf("file system %#x", st.Type)
}

// Load is the machine's load average of the last minute: how much others worked.
func Load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}
