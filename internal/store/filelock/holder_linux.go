package filelock

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Holder returns the process that has the file locked, 0 if that can't be
// told. The kernel's list says it, so nothing need be written anywhere; a
// process of another container isn't on it.
func Holder(f *os.File) int {
	var st syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	list, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer list.Close()

	// A line is "7: FLOCK  ADVISORY  WRITE 1234 fd:00:5678 0 EOF". On some
	// file systems the list and stat disagree on the device, so the inode
	// alone will do if no other line has it.
	dev := uint64(st.Dev)
	major := dev>>8&0xfff | dev>>32&^0xfff
	minor := dev&0xff | dev>>12&^0xff
	whole := fmt.Sprintf("%02x:%02x:%d", major, minor, st.Ino)
	inode := fmt.Sprintf(":%d", st.Ino)
	var loose []int
	for lines := bufio.NewScanner(list); lines.Scan(); {
		w := strings.Fields(lines.Text())
		if len(w) < 6 || w[1] != "FLOCK" || !strings.HasSuffix(w[5], inode) {
			continue
		}
		pid, err := strconv.Atoi(w[4])
		if err != nil || pid <= 0 {
			continue
		}
		if w[5] == whole {
			return pid
		}
		loose = append(loose, pid)
	}
	if len(loose) == 1 {
		return loose[0]
	}
	return 0
}
