// The package has no types of its own.
declare module "swagger-ui-dist/swagger-ui-es-bundle.js" {
  export type SentRequest = { loadSpec?: boolean; method: string; headers: Record<string, string> };
  export default function SwaggerUI(options: {
    dom_id: string;
    url: string;
    validatorUrl: null;
    docExpansion: "none";
    defaultModelsExpandDepth: number;
    deepLinking: boolean;
    filter: boolean;
    tryItOutEnabled: boolean;
    requestInterceptor: (request: SentRequest) => Promise<SentRequest>;
  }): unknown;
}
