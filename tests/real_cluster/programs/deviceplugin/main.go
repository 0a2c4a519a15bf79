// Offers devices that are not there to a real kubelet, by its device plugin API, one process for a node.
//
//	deviceplugin --folder /var/lib/kubelet/device-plugins --mount /node/sys:/sys:ro nvidia.com/gpu=8 rdma/hca_shared_devices_a=63
//
// A device is named RESOURCE-NUMBER. Those that the file --unhealthy names, a line each, are reported as unhealthy.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const look = time.Second // how often the kubelet's socket and the list of unhealthy devices are looked at

type several []string

func (s *several) String() string       { return strings.Join(*s, " ") }
func (s *several) Set(one string) error { *s = append(*s, one); return nil }

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource  string
	count     int
	unhealthy string
	mounts    []string
	env       []string
}

func (p *plugin) devices() []*api.Device {
	bad := map[string]bool{}
	if file, err := os.Open(p.unhealthy); err == nil {
		for lines := bufio.NewScanner(file); lines.Scan(); {
			bad[strings.TrimSpace(lines.Text())] = true
		}
		file.Close()
	}
	devices := []*api.Device{}
	for n := 0; n < p.count; n++ {
		id := fmt.Sprintf("%s-%d", filepath.Base(p.resource), n)
		health := api.Healthy
		if bad[id] {
			health = api.Unhealthy
		}
		devices = append(devices, &api.Device{ID: id, Health: health})
	}
	return devices
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	told := ""
	for stream.Context().Err() == nil {
		devices := p.devices()
		if now := fmt.Sprint(devices); now != told {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
			told = now
		}
		time.Sleep(look)
	}
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for range request.ContainerRequests {
		one := &api.ContainerAllocateResponse{Envs: map[string]string{}}
		for _, mount := range p.mounts {
			parts := strings.SplitN(mount, ":", 3)
			one.Mounts = append(one.Mounts, &api.Mount{HostPath: parts[0], ContainerPath: parts[1], ReadOnly: parts[2] == "ro"})
		}
		for _, pair := range p.env {
			name, value, _ := strings.Cut(pair, "=")
			one.Envs[name] = value
		}
		response.ContainerResponses = append(response.ContainerResponses, one)
	}
	return response, nil
}

// serve answers on a socket of its own until the kubelet, which empties its folder when it starts, has removed it.
func (p *plugin) serve(folder string) error {
	socket := filepath.Join(folder, strings.ReplaceAll(p.resource, "/", "_")+".sock")
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	defer server.Stop()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	kubelet, err := grpc.NewClient("unix://"+filepath.Join(folder, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: filepath.Base(socket), ResourceName: p.resource}
	if _, err := api.NewRegistrationClient(kubelet).Register(context.Background(), request); err != nil {
		return err
	}
	log.Printf("%s: %d devices offered", p.resource, p.count)
	for {
		time.Sleep(look)
		if _, err := os.Stat(socket); err != nil {
			return fmt.Errorf("the kubelet started anew: %w", err)
		}
	}
}

func main() {
	var mounts, env several
	folder := flag.String("folder", "/var/lib/kubelet/device-plugins", "where the kubelet listens")
	unhealthy := flag.String("unhealthy", "", "file that names unhealthy devices, a line each")
	flag.Var(&mounts, "mount", "HOST:CONTAINER:ro|rw, what a container gets with the first resource; may be repeated")
	flag.Var(&env, "env", "NAME=VALUE, likewise")
	flag.Parse()
	for number, argument := range flag.Args() {
		resource, amount, _ := strings.Cut(argument, "=")
		count, err := strconv.Atoi(amount)
		if err != nil {
			log.Fatalf("%s: RESOURCE=COUNT is expected", argument)
		}
		one := &plugin{resource: resource, count: count, unhealthy: *unhealthy}
		if number == 0 {
			one.mounts, one.env = mounts, env
		}
		go func() {
			for {
				log.Printf("%s: %v", one.resource, one.serve(*folder))
				time.Sleep(look)
			}
		}()
	}
	select {}
}
