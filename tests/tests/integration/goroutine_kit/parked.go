// Goroutines that wait in as many ways as there are. For each line on stdin the program prints what the runtime says
// about all of them; with an argument it starts that many more, all alike.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

type box struct {
	mu   sync.Mutex
	rw   sync.RWMutex
	cond *sync.Cond
	ch   chan int
}

type receiver interface{ receive(n int) int }

// wrapped gets receive by embedding: called through the interface, there is a wrapper in between.
type wrapped struct{ *box }

func (b *box) receive(n int) int { return n + <-b.ch }

//go:noinline
func (b *box) send(n int) { b.ch <- n }

func (b *box) lockTwice() {
	b.mu.Lock()
	b.mu.Lock()
}

func (b *box) readLocked() {
	b.rw.RLock()
}

func (b *box) waitOnCond() {
	b.cond.L.Lock()
	b.cond.Wait()
}

func recurse(n int, ch chan int) int {
	if n == 0 {
		return <-ch
	}
	var pad [16]int
	pad[n%16] = n
	return recurse(n-1, ch) + pad[(n+1)%16]
}

//go:noinline
func bigFrame(ch chan int) int {
	var buf [100 << 10]byte
	for i := range buf {
		buf[i] = byte(i)
	}
	return callee(ch) + int(buf[cap(ch)])
}

//go:noinline
func callee(ch chan int) int { return <-ch }

func inlinedOuter(ch chan int) int { return inlinedInner(ch) + 1 }
func inlinedInner(ch chan int) int { return <-ch + 2 }

//go:noinline
func inDefer(ch chan int) (n int) {
	defer func() { n = <-ch }()
	return 7
}

//go:noinline
func inPanic(ch chan int) {
	defer func() {
		recover()
	}()
	defer func() { <-ch }()
	panic("on purpose")
}

//go:noinline
func inFault(b *box) int {
	defer func() { <-b.ch }()
	var none *box
	return len(none.ch)
}

func closures(ch chan int) func() int {
	n := 1
	return func() int {
		return func() int { return n + <-ch }()
	}
}

func variadic(ch chan int, many ...interface{}) int { return len(many) + <-ch }

func park() {
	never := make(chan int)
	other := make(chan string)
	b := &box{ch: never, cond: sync.NewCond(&sync.Mutex{})}
	full := &box{ch: make(chan int)}
	go b.receive(1)
	go full.send(1)
	go func() { full.send(2) }()
	go func() {
		select {
		case <-never:
		case other <- "x":
		}
	}()
	go func() { select {} }()
	go func() { <-(chan int)(nil) }()
	go b.lockTwice()
	go func() {
		b.rw.Lock()
		b.rw.Lock()
	}()
	time.Sleep(10 * time.Millisecond)
	go b.readLocked()
	go b.waitOnCond()
	go func() {
		var group sync.WaitGroup
		group.Add(1)
		group.Wait()
	}()
	go time.Sleep(time.Hour)
	go func() { <-time.After(time.Hour) }()
	go func() {
		for range time.NewTicker(time.Hour).C {
		}
	}()
	go func() {
		var once sync.Once
		once.Do(func() { <-never })
	}()
	go recurse(20, never)
	go recurse(3000, never)
	go bigFrame(never)
	go inlinedOuter(never)
	go inDefer(never)
	go inPanic(never)
	go inFault(b)
	go closures(never)()
	go variadic(never, 1, "2", 3.0)
	method := b.receive
	go method(3)
	var dynamic receiver = wrapped{b}
	go dynamic.receive(4)
	go func() { reflect.ValueOf(closures(never)).Call(nil) }()
	go func() { reflect.ValueOf(b).MethodByName("Exported").Call(nil) }()
	go func() {
		runtime.LockOSThread()
		<-never
	}()
	go func() {
		defer close(other)
		runtime.Gosched()
		for i := range never {
			fmt.Println(i)
		}
	}()
	network()
	pipes()
	extra(never)
}

// Exported is found by reflection.
func (b *box) Exported() { <-b.ch }

func network() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go conn.Read(make([]byte, 10))
		}
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	go func() {
		_, err := bufio.NewReader(conn).ReadString('\n')
		fmt.Println(err)
	}()
}

func pipes() {
	r, _, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	go r.Read(make([]byte, 10))
	var raw [2]int
	if err := syscall.Pipe(raw[:]); err != nil {
		panic(err)
	}
	go syscall.Read(raw[0], make([]byte, 10))
	go func() {
		var set syscall.FdSet
		syscall.Select(0, &set, nil, nil, nil)
	}()
}

func main() {
	park()
	if len(os.Args) > 1 {
		many, _ := strconv.Atoi(os.Args[1])
		ch := make(chan int)
		for i := 0; i < many; i++ {
			go recurse(i%10, ch)
		}
	}
	time.Sleep(200 * time.Millisecond)
	fmt.Println("ready")
	input := bufio.NewReader(os.Stdin)
	for {
		if _, err := input.ReadString('\n'); err != nil {
			return
		}
		text := make([]byte, 8<<20)
		fmt.Println(string(text[:runtime.Stack(text, true)]))
		fmt.Println("end of dump")
	}
}
