// The official Go SDK over HTTP: prints its port, then serves the tool of the benchmark. With the argument "json" it
// answers with JSON instead of event streams. See docs/performance.md for how to build it.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type arguments struct {
	A int `json:"a"`
	B int `json:"b"`
}

type sum struct {
	Result int `json:"result"`
}

func add(_ context.Context, _ *mcp.CallToolRequest, args arguments) (*mcp.CallToolResult, sum, error) {
	return nil, sum{args.A + args.B}, nil
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Add two numbers."}, add)
	options := &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: slices.Contains(os.Args, "json")}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, handler))
}
