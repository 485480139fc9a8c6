// Relists as often as told, then hangs in one for ever; never with 0. To each line of its input it answers when the last list
// that succeeded began, nanoseconds of CLOCK_MONOTONIC.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"k8s.io/kubernetes/pkg/kubelet/pleg"
)

func monotonic() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

type runtime struct {
	most, count, last int64
	hangs             chan struct{}
}

func (r *runtime) GetPods(all bool) ([]string, error) {
	began := monotonic()
	if r.most > 0 && r.count == r.most {
		close(r.hangs)
		select {}
	}
	r.count++
	atomic.StoreInt64(&r.last, began)
	return []string{"a", "b"}, nil
}

func main() {
	most, _ := strconv.ParseInt(os.Args[1], 10, 64)
	r := &runtime{most: most, hangs: make(chan struct{})}
	pleg.New(r, 20*time.Millisecond).Start()
	if most > 0 {
		<-r.hangs
	}
	for atomic.LoadInt64(&r.last) == 0 {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Printf("%d\nend of dump\n", atomic.LoadInt64(&r.last))
	}
}
