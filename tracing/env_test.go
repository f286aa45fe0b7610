package tracing

import (
	"context"
	"strings"
	"testing"
)

func TestEnvironment(t *testing.T) {
	const http, grpc = "http/protobuf", "grpc"
	for _, c := range []struct {
		name     string
		vars     []string
		protocol string // empty: no traces
		sampler  string // part of its description
	}{
		{"nothing set", nil, "", ""},
		{"endpoint", []string{envEndpoint, "http://127.0.0.1:4318"}, http, "root:TraceIDRatioBased{0.01}"},
		{"endpoint for traces", []string{envTracesEndpoint, "https://127.0.0.1:4318/v1/traces"}, http, "{0.01}"},
		{"exporter without endpoint", []string{envExporter, "otlp"}, http, "{0.01}"},
		{"exporter none", []string{envExporter, "none", envEndpoint, "http://127.0.0.1:4318"}, "", ""},
		{"disabled", []string{envDisabled, "TRUE", envEndpoint, "http://127.0.0.1:4318"}, "", ""},
		{"not disabled", []string{envDisabled, "false", envEndpoint, "http://127.0.0.1:4318"}, http, "{0.01}"},
		{"grpc", []string{envExporter, "otlp", envProtocol, "grpc"}, grpc, "{0.01}"},
		{"grpc target", []string{envEndpoint, "localhost:4317", envProtocol, "grpc"}, grpc, "{0.01}"},
		{"protocol for traces", []string{envExporter, "otlp", envProtocol, "grpc", envTracesProtocol, "http/json"}, "http/json", "{0.01}"},
		{"ratio alone", []string{envExporter, "otlp", envSamplerArg, "0.5"}, http, "root:TraceIDRatioBased{0.5}"},
		{"sampler without ratio", []string{envExporter, "otlp", envSampler, "parentbased_traceidratio"}, http, "root:TraceIDRatioBased{1}"},
		{"ratio", []string{envExporter, "otlp", envSampler, "TraceIDRatio", envSamplerArg, "0.25"}, http, "TraceIDRatioBased{0.25}"},
		{"always on", []string{envExporter, "otlp", envSampler, "always_on"}, http, "AlwaysOnSampler"},
		{"always off", []string{envExporter, "otlp", envSampler, "always_off"}, "", ""},
		{"parents only", []string{envExporter, "otlp", envSampler, "parentbased_always_off"}, http, "ParentBased{root:AlwaysOffSampler"},
		{"parents or all", []string{envExporter, "otlp", envSampler, "parentbased_always_on"}, http, "ParentBased{root:AlwaysOnSampler"},
	} {
		t.Run(c.name, func(t *testing.T) {
			setenv(t, c.vars...)
			e, err := readEnvironment()
			if err != nil {
				t.Fatal(err)
			}
			if e.protocol != c.protocol {
				t.Fatalf("protocol is %q, want %q", e.protocol, c.protocol)
			}
			if c.protocol != "" && !strings.Contains(e.sampler.Description(), c.sampler) {
				t.Errorf("sampler is %s, want %s", e.sampler.Description(), c.sampler)
			}
		})
	}
}

func TestSamplingIsSaidAtStart(t *testing.T) {
	setenv(t, envExporter, "otlp")
	out := new(lines)
	tel := setup(t, Config{Log: LogConfig{Format: "json", Output: out}})
	wantLines(t, out, map[string]any{
		"level": "INFO", "msg": "traces are exported", "protocol": "http/protobuf",
		"sampler": "parentbased_traceidratio 0.01",
	})
	if err := tel.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestEnvironmentRefuses(t *testing.T) {
	for _, c := range []struct {
		want string // part of the error
		vars []string
	}{
		{envExporter, []string{envExporter, "zipkin"}},
		{envTracesProtocol, []string{envExporter, "otlp", envTracesProtocol, "carrier-pigeon"}},
		{envProtocol, []string{envExporter, "otlp", envProtocol, "http"}},
		{envEndpoint, []string{envEndpoint, "127.0.0.1:4318"}},
		{envEndpoint, []string{envEndpoint, "localhost:4318"}},
		{envTracesEndpoint, []string{envTracesEndpoint, "ftp://127.0.0.1"}},
		{envEndpoint, []string{envEndpoint, "http://[::1"}},
		{envSampler, []string{envExporter, "otlp", envSampler, "jaeger_remote"}},
		{envSamplerArg, []string{envExporter, "otlp", envSamplerArg, "lots"}},
		{envSamplerArg, []string{envExporter, "otlp", envSamplerArg, "1.1"}},
		{envSamplerArg, []string{envExporter, "otlp", envSamplerArg, "-0.1"}},
		{envSamplerArg, []string{envExporter, "otlp", envSamplerArg, "NaN"}},
		{envPropagators, []string{envPropagators, "b3"}},
	} {
		t.Run(strings.Join(c.vars, " "), func(t *testing.T) {
			setenv(t, c.vars...)
			_, err := Setup(t.Context(), DefaultConfig())
			if err == nil || !strings.HasPrefix(err.Error(), c.want+":") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error is %v, want one line about %s", err, c.want)
			}
		})
	}
}

func TestEndpointIsNotRepeated(t *testing.T) {
	setenv(t, envEndpoint, "user:secret@host")
	if _, err := Setup(t.Context(), DefaultConfig()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error is %v", err)
	}
}

func TestPropagators(t *testing.T) {
	for list, want := range map[string]bool{
		"": true, "tracecontext": true, "tracecontext,baggage": true, "baggage , tracecontext": true,
		"none": false, "baggage": false,
	} {
		setenv(t, envPropagators, list)
		if e, err := readEnvironment(); err != nil || e.parents != want {
			t.Errorf("%q: parents %v, error %v", list, e.parents, err)
		}
	}
}

func TestStabilityOptIn(t *testing.T) {
	for list, want := range map[string]bool{"": false, "rpc": false, "http, rpc/dup": true} {
		setenv(t, envStability, list)
		if e, err := readEnvironment(); err != nil || e.dup != want {
			t.Errorf("%q: dup %v, error %v", list, e.dup, err)
		}
	}
}

func TestHooksAreNilWhereNothingLooks(t *testing.T) {
	for _, c := range []struct {
		name  string
		vars  []string
		calls bool
	}{
		{"nothing set", nil, false},
		{"none", []string{envExporter, "none", envEndpoint, "http://127.0.0.1:4318"}, false},
		{"always off", []string{envExporter, "otlp", envSampler, "always_off"}, false},
		{"disabled", []string{envExporter, "otlp", envDisabled, "true"}, false},
		{"on", []string{envExporter, "otlp"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			setenv(t, c.vars...)
			cfg := DefaultConfig()
			cfg.Log.Output = new(lines)
			tel, err := Setup(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			h := tel.ProxyHooks()
			if (h.CallStart != nil) != c.calls || (h.CallEnd != nil) != c.calls {
				t.Errorf("CallStart set: %v, CallEnd set: %v, want %v", h.CallStart != nil, h.CallEnd != nil, c.calls)
			}
			if h.Dropped == nil || h.SessionOpened != nil || h.SessionClosed != nil {
				t.Error("at level info, drops are logged and sessions are not")
			}
			if err := tel.Shutdown(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConfigIsValidated(t *testing.T) {
	setenv(t)
	cfg := DefaultConfig()
	cfg.Log.Format, cfg.Methods = "xml", []string{"ok", ""}
	_, err := Setup(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "log.format") || !strings.Contains(err.Error(), "telemetry.methods") {
		t.Errorf("error is %v, want both mistakes", err)
	}
}
