// The page begins here.

import { html, render } from './html.js';
import { Shell } from './shell.js';
import { takeToken } from './token.js';

takeToken();
const root = document.getElementById('app');
root.replaceChildren();
render(html`<${Shell} />`, root);
