module github.com/idmux/idmux/e2e

go 1.26.0

require (
	github.com/gorilla/websocket v1.5.3
	github.com/idmux/idmux v0.0.0
)

require go.uber.org/goleak v1.3.0 // indirect

replace github.com/idmux/idmux => ../
