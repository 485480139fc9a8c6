// An NRI plugin that asks for updates by itself, one after the other, and has none to make: `plegtrace-nri-plugin SOCKET`. It ends with its
// parent, or with its connection.
package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// The runtime waits for two seconds at most.
const thinks = 20 * time.Millisecond

type plugin struct{}

func (plugin) UpdateContainer(context.Context, *api.PodSandbox, *api.Container, *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	time.Sleep(thinks)
	return nil, nil
}

func main() {
	// PR_SET_PDEATHSIG
	if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, 1, uintptr(syscall.SIGKILL), 0); err != 0 {
		fail(err)
	}
	own, err := stub.New(plugin{}, stub.WithPluginName("plegtrace"), stub.WithPluginIdx("10"), stub.WithSocketPath(os.Args[1]))
	if err != nil {
		fail(err)
	}
	if err := own.Start(context.Background()); err != nil {
		fail(err)
	}
	fmt.Println("registered")
	for {
		// When the runtime is locked, this ends after two seconds; the next call waits behind it there.
		if _, err := own.UpdateContainers(nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(time.Second)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
