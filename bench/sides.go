package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
)

// Sides by name. direct is the backend itself; every other side is a proxy
// before it. Builds of idmux come last, under their own names.
const (
	direct    = "direct"
	nginx     = "nginx"
	haproxy   = "haproxy"
	haproxyMT = "haproxy-mt" // with a thread for each processor, its default
	idmux     = "idmux"      // stands for all builds
)

// setup is what a proxy's configuration depends on.
type setup struct {
	Address, Backend string
	Workers, Files   int
	Root             bool
}

// nginxConf passes WebSocket and HTTP through as its manual says; timeouts and
// limits are out of the way, logs are off.
var nginxConf = template.Must(template.New("nginx.conf").Parse(`daemon off;
{{if .Root}}user root;
{{end}}worker_processes {{.Workers}};
worker_rlimit_nofile {{.Files}};
pid nginx.pid;
error_log stderr warn;
events {
	worker_connections {{.Files}};
}
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	keepalive_requests 1000000000;
	map $http_upgrade $connection_upgrade {
		default upgrade;
		'' '';
	}
	upstream backend {
		server {{.Backend}};
		keepalive 1024;
		keepalive_requests 1000000000;
	}
	server {
		listen {{.Address}} backlog=4096{{if gt .Workers 1}} reuseport{{end}};
		location / {
			proxy_pass http://backend;
			proxy_http_version 1.1;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $connection_upgrade;
			proxy_read_timeout 1h;
			proxy_send_timeout 1h;
		}
	}
}
`))

var haproxyConf = template.Must(template.New("haproxy.cfg").Parse(`global
	maxconn {{.Files}}
{{if .Workers}}	nbthread {{.Workers}}
{{end}}defaults
	mode http
	timeout connect 5s
	timeout client 1h
	timeout server 1h
	timeout tunnel 1h
frontend front
	bind {{.Address}}
	default_backend back
backend back
	server one {{.Backend}}
`))

// installs says how a missing rival is installed on Debian.
var installs = map[string]string{"nginx": "nginx-light", "haproxy": "haproxy"}

// lookUp finds a rival's program, also where it isn't in an ordinary user's path.
func lookUp(program string) (string, error) {
	for _, name := range []string{program, "/usr/sbin/" + program} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: apt-get install %s", program, installs[program])
}

// startSide starts the side called name before backend and returns when it
// answers. A build of idmux goes by its own name.
func (l *lab) startSide(ctx context.Context, name string, backend *server, nginxWorkers int) (*server, error) {
	if name == direct {
		return backend, nil
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	in := setup{Address: address, Backend: backend.address, Workers: nginxWorkers, Files: openFiles(), Root: os.Geteuid() == 0}
	var s *server
	switch name {
	case nginx:
		s, err = l.startNginx(ctx, in)
	case haproxy:
		in.Workers = 1
		s, err = l.startHAProxy(ctx, name, in)
	case haproxyMT:
		in.Workers = 0
		s, err = l.startHAProxy(ctx, name, in)
	default:
		s, err = l.startIdmux(ctx, name, in)
	}
	if err != nil {
		return nil, err
	}
	return s, l.await(ctx, s)
}

func (l *lab) startNginx(ctx context.Context, in setup) (*server, error) {
	program, err := lookUp("nginx")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(l.dir, "nginx")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	conf, err := writeConf(dir, nginxConf, in)
	if err != nil {
		return nil, err
	}
	return l.start(ctx, nginx, in.Address, true, nil, program, "-p", dir+"/", "-e", "stderr", "-c", conf)
}

func (l *lab) startHAProxy(ctx context.Context, name string, in setup) (*server, error) {
	program, err := lookUp("haproxy")
	if err != nil {
		return nil, err
	}
	in.Files = in.Files/2 - 64 // it takes two for each connection and some more
	dir := filepath.Join(l.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	conf, err := writeConf(dir, haproxyConf, in)
	if err != nil {
		return nil, err
	}
	return l.start(ctx, name, in.Address, false, nil, program, "-db", "-f", conf)
}

func (l *lab) startIdmux(ctx context.Context, name string, in setup) (*server, error) {
	for _, b := range l.builds {
		if b.name != name {
			continue
		}
		argv := append([]string{b.path, "serve", "--listen", "http://" + in.Address, "--upstream", "ws://" + in.Backend,
			"--pool", fmt.Sprint(l.pool), "--admin", "off"}, l.args...)
		return l.start(ctx, name, in.Address, false, l.env, argv...)
	}
	return nil, fmt.Errorf("no side %q: want %s", name, strings.Join([]string{direct, nginx, haproxy, haproxyMT, idmux}, ", "))
}

// expand returns the names of the sides that text lists, the builds in idmux's place.
func (l *lab) expand(text string) []string {
	var names []string
	for name := range strings.SplitSeq(text, ",") {
		if name != idmux {
			names = append(names, name)
			continue
		}
		for _, b := range l.builds {
			names = append(names, b.name)
		}
	}
	return names
}

func (l *lab) isBuild(name string) bool {
	for _, b := range l.builds {
		if b.name == name {
			return true
		}
	}
	return false
}

func writeConf(dir string, t *template.Template, in setup) (string, error) {
	path := filepath.Join(dir, t.Name())
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return path, t.Execute(f, in)
}
