// A device plugin that stops itself when it is asked for its device for the first time, and answers once it goes on again.
//
//	device-plugin DIRECTORY    with kubelet.sock in it; its own socket is next to that
//
// It writes "registered" once the kubelet has taken its list of devices.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	endpoint = "lab.sock"
	resource = "plegtrace.lab/device"
)

type plugin struct{}

func (plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	devices := []*api.Device{{ID: "one", Health: api.Healthy}}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	fmt.Println("registered")
	<-stream.Context().Done()
	return nil
}

func (plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return nil, err
	}
	// The signal comes to the process, perhaps not at once to this thread.
	time.Sleep(time.Second)
	answer := &api.AllocateResponse{}
	for range asked.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{})
	}
	return answer, nil
}

func (plugin) GetPreferredAllocation(context.Context, *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	return &api.PreferredAllocationResponse{}, nil
}

func (plugin) PreStartContainer(context.Context, *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	return &api.PreStartContainerResponse{}, nil
}

func try(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	// It must not outlive the lab.
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
	if errno != 0 {
		log.Fatal(errno)
	}
	directory := os.Args[1]
	listener, err := net.Listen("unix", filepath.Join(directory, endpoint))
	try(err)
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, plugin{})
	go func() { try(server.Serve(listener)) }()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	dial := func(ctx context.Context, path string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	kubelet := filepath.Join(directory, "kubelet.sock")
	connection, err := grpc.DialContext(ctx, kubelet, grpc.WithInsecure(), grpc.WithBlock(), grpc.WithContextDialer(dial))
	try(err)
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: resource}
	_, err = api.NewRegistrationClient(connection).Register(ctx, request)
	try(err)
	select {}
}
