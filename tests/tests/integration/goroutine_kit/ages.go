// Goroutines that park at known times while garbage is collected at random. A line on stdin ends all that; then the
// program prints when each goroutine began to wait, every time, and when collections that it asked for began and ended.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const many = 40

type waiter struct {
	goid  string
	pipe  [2]int
	ch    chan struct{}
	parks [1 << 14]int64
	count int64
}

var sink []byte

// now is CLOCK_MONOTONIC, asked without telling the scheduler.
func now() int64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

//go:noinline
func wait(depth int, w *waiter) int {
	if depth > 0 {
		return wait(depth-1, w) + 1
	}
	if n := atomic.AddInt64(&w.count, 1) - 1; n < int64(len(w.parks)) {
		atomic.StoreInt64(&w.parks[n], now())
	}
	if w.ch != nil {
		<-w.ch
		return 0
	}
	var one [1]byte
	n, _ := syscall.Read(w.pipe[0], one[:])
	return n
}

func (w *waiter) run(depth int) {
	text := make([]byte, 64)
	w.goid = string(bytes.Fields(text[:runtime.Stack(text, false)])[1])
	for {
		wait(depth, w)
		// Assists the collector, and may end a collection.
		for i := 0; i < 8; i++ {
			sink = make([]byte, 256<<10)
		}
	}
}

func (w *waiter) wake() {
	if w.ch == nil {
		syscall.Write(w.pipe[1], []byte{0})
		return
	}
	select {
	case w.ch <- struct{}{}:
	default:
	}
}

func main() {
	var collections [][2]int64
	collect := func() {
		begun := now()
		runtime.GC()
		collections = append(collections, [2]int64{begun, now()})
	}
	all := make([]*waiter, many)
	for i := range all {
		all[i] = &waiter{}
		if i%4 == 3 {
			syscall.Pipe(all[i].pipe[:])
		} else {
			all[i].ch = make(chan struct{}, 1)
		}
		go all[i].run(i + 1)
	}
	time.Sleep(50 * time.Millisecond)
	collect()
	collect()
	fmt.Println("ready")
	var done int32
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		atomic.StoreInt32(&done, 1)
	}()
	for atomic.LoadInt32(&done) == 0 {
		// The first ones sleep on.
		all[many/4+rand.Intn(many*3/4)].wake()
		if rand.Intn(12) == 0 {
			collect()
		}
		time.Sleep(time.Duration(rand.Intn(15)) * time.Millisecond)
	}
	for _, w := range all {
		fmt.Print("waiter ", w.goid)
		for i := int64(0); i < atomic.LoadInt64(&w.count) && i < int64(len(w.parks)); i++ {
			fmt.Print(" ", atomic.LoadInt64(&w.parks[i]))
		}
		fmt.Println()
	}
	for _, c := range collections {
		fmt.Println("collection", c[0], c[1])
	}
	fmt.Println("end of dump")
	select {}
}
