module github.com/idmux/idmux/e2e

go 1.26.0

require (
	github.com/gorilla/websocket v1.5.3
	github.com/idmux/idmux v0.0.0
	github.com/modelcontextprotocol/go-sdk v1.8.0
)

require (
	github.com/a2aproject/a2a-go v0.3.15 // indirect
	github.com/google/jsonschema-go v0.4.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/segmentio/asm v1.1.3 // indirect
	github.com/segmentio/encoding v0.5.4 // indirect
	github.com/yosida95/uritemplate/v3 v3.0.2 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/oauth2 v0.36.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	google.golang.org/genproto/googleapis/api v0.0.0-20260928230214-8a89bd6388cc // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260928230214-8a89bd6388cc // indirect
	google.golang.org/grpc v1.83.2 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

require (
	github.com/a2aproject/a2a-go/v2 v2.3.1
	go.uber.org/goleak v1.3.0 // indirect
)

replace github.com/idmux/idmux => ../

tool github.com/modelcontextprotocol/go-sdk/conformance/everything-server
